"""What an engine starts with: who runs its passes, the blocks that it shares out, and a clock."""

import time
from collections.abc import Callable

from twophase.models.transformer import Transformer
from twophase.serving.config import EngineConfig
from twophase.serving.model_runner import ModelRunner
from twophase.serving.runner import Runner
from twophase.serving.window_blocks import Room, plain_blocks, room_for


def runner_and_room(model: Transformer | Runner, c: EngineConfig) -> tuple[Runner, Room]:
    """Pools for a Transformer, as many blocks as the config says; another runner as it is.

    ValueError for a name in place of a model, and for prefix caching on a model with states.
    """
    if isinstance(model, str):
        raise ValueError(
            f"an engine takes a model, not a name: take models.checkpoints.load({model!r}), or"
            f" LLM({model!r})."
        )
    room = Room(plain_blocks(c))
    if isinstance(model, Transformer):
        room = room_for(c, model.config)
        model = ModelRunner(
            model,
            c.n_blocks,
            c.block_size,
            c.max_seqs,
            batch_invariant=c.batch_invariant,
            window_blocks=room.windows.n_blocks if room.windows else 0,
            pack_weights=c.pack_weights,
        )
    if c.prefix_caching and model.has_states:
        raise ValueError(
            "layers of this model keep a state, which no block holds: a shared prefix would leave"
            " it empty. Take prefix_caching=False."
        )
    return model, room


def since_now() -> Callable[[], float]:
    """The machine's clock, in seconds, from now on."""
    started = time.perf_counter()
    return lambda: time.perf_counter() - started
