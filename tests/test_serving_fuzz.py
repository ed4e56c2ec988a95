"""Any arrivals, lengths, forks, aborts and pools: the tokens are those of the naive loop alone.

Small models with random weights, in fp64: what is held is an identity, which trained ones would not
hold better.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import hypothesis.strategies as st
import pytest
import torch
from draws import draws
from hypothesis import given

from twophase.models.config import Config
from twophase.models.generate import complete
from twophase.models.layer_sizes import LinearAttention, StateSpace
from twophase.models.transformer import Transformer
from twophase.serving import (
    ContinuousBatching,
    DynamicBatching,
    Engine,
    EngineConfig,
    SamplingParams,
    ShortestFirst,
    StaticBatching,
    Status,
)
from twophase.serving.block_manager import check_conserved
from twophase.theory.sizes import LatentAttention

SIZES = {"L": 3, "D": 12, "F": 16, "N": 4, "K": 2, "H": 4, "V": 5, "context": 64, "tied": False}
STATES = {
    "attention": ("ssm", "gqa", "linear"),
    "ssm": StateSpace(d_inner=10, d_state=3, conv_width=3, dt_rank=2),
    "linear": LinearAttention(feature_dim=2),
}
MODELS = {
    "grouped": {},
    "windows": {"attention": ("sliding", "gqa", "sliding"), "window": 3},
    "latents": {"attention": "mla", "mla": LatentAttention(R=6, rope_dim=2, nope_dim=3, v_dim=5)},
    "shared": {"kv_source": (0, 0, 2)},
    "only_windows": {"attention": "sliding", "window": 3},
    "states": STATES,
    "only_states": {"attention": "ssm", "ssm": STATES["ssm"]},
}
STATELESS = [name for name in MODELS if "states" not in name]
POLICIES = [ContinuousBatching, ShortestFirst, StaticBatching, DynamicBatching]
WHOLE = st.integers


@cache
def model(name: str) -> Transformer:
    torch.manual_seed(0)
    made = Transformer(Config(**SIZES, **MODELS[name])).double()
    for weight in made.parameters():  # as drawn they say one token for ever
        weight.data *= 30 if weight.ndim == 2 else 1
    return made


@cache
def alone(name: str, prompt: tuple[int, ...], params: SamplingParams) -> list[int]:
    generator = torch.Generator().manual_seed(params.seed or 0)
    options = {"temperature": params.temperature, "generator": generator, "stop": params.stop}
    return complete(model(name), prompt, params.max_tokens, **options).tokens


asked = st.tuples(
    st.lists(WHOLE(0, 1), min_size=1, max_size=14).map(tuple),  # few tokens: prefixes are shared
    st.builds(
        SamplingParams,
        max_tokens=WHOLE(0, 12),
        temperature=st.sampled_from([0.0, 0.7]),
        stop=st.sampled_from([(), ((3,), (1, 1))]),
        seed=WHOLE(0, 3),
        n=st.sampled_from([1, 1, 1, 3]),
    ),
)
deeds = st.lists(
    st.one_of(
        st.tuples(st.just("add"), asked),
        st.tuples(st.just("step"), WHOLE(1, 4)),
        st.tuples(st.just("abort"), WHOLE(0, 30)),
        st.tuples(st.just("fork"), WHOLE(0, 30)),
        st.tuples(st.just("compact"), st.none()),
    ),
    min_size=3,
    max_size=25,
)
configs = st.builds(
    EngineConfig,
    n_blocks=WHOLE(13, 30),  # the longest request needs 13 blocks of 2
    block_size=st.sampled_from([2, 3, 4]),
    max_seqs=WHOLE(3, 5),
    max_batched_tokens=WHOLE(5, 20),
    chunked_prefill=st.booleans(),
    reserve=st.booleans(),
    preemption=st.sampled_from(["recompute", "swap"]),
)


def conserved(engine: Engine) -> None:
    check_conserved(engine.blocks)


def serve(
    name: str, config: EngineConfig, policy: type, todo: list, holds: Callable = conserved
) -> Engine:
    """Do it all, and hold what must hold after every step."""
    now = [0.0]

    def clock() -> float:
        now[0] += 0.05
        return now[0]

    engine = Engine(model(name), config, policy=policy(), clock=clock)
    for what, how in todo:
        if what == "add":
            engine.add(*how)
        elif what == "step":
            for _ in range(how):
                engine.step()
        elif what == "compact":
            engine.compact()
        elif how in engine.requests and what == "abort":
            engine.abort(how)
        elif how in engine.requests:
            fork(engine, how)
        holds(engine)
    for _ in range(2000):
        if not engine.busy:
            break
        engine.step()
        holds(engine)
    return engine


def fork(engine: Engine, number: int) -> None:
    """A second one, if the first decodes and there is a seat; greedy from there on."""
    parent = engine.requests[number]
    decoding = parent.status is Status.RUNNING and parent.n_missing == 1
    if decoding and engine.scheduler.seats_taken < engine.config.max_seqs:
        engine.fork(number, SamplingParams(max_tokens=parent.params.max_tokens))


def hold(name: str, engine: Engine) -> None:
    """Nobody starves, nothing leaks, and nobody says what it would not say alone."""
    assert not engine.busy
    assert engine.blocks.n_free == engine.blocks.n_blocks
    for request in engine.requests.values():
        assert request.status is Status.FINISHED
        want = alone(name, request.prompt, request.params)
        if request.parent is not None and request.params.seed is None:  # a fork, from any sampled
            continue
        said = request.tokens
        assert said == (want[: len(said)] if request.finish_reason == "abort" else want)


@pytest.mark.parametrize("name", MODELS)
@draws(12)
@given(config=configs, policy=st.sampled_from(POLICIES), todo=deeds)
def test_whatever_happens_each_says_what_it_says_alone(
    name: str, config: EngineConfig, policy: type, todo: list
) -> None:
    hold(name, serve(name, config, policy, todo))


@pytest.mark.parametrize("name", STATELESS)
@draws(12)
@given(
    config=configs,
    index=st.sampled_from(["hash", "radix"]),
    policy=st.sampled_from(POLICIES),
    todo=deeds,
)
def test_prefixes_found_in_blocks_of_others_change_nothing(
    name: str, config: EngineConfig, index: str, policy: type, todo: list
) -> None:
    shared = replace(config, prefix_caching=True, prefix_index=index)
    hold(name, serve(name, shared, policy, todo))


def test_the_models_say_different_things_after_different_prompts() -> None:
    """Else every schedule would say the same."""
    prompts = [(i & 1, i >> 1 & 1, i >> 2) for i in range(8)]
    for name in MODELS:
        greedy = {tuple(alone(name, p, SamplingParams(max_tokens=12))) for p in prompts}
        drawn = {
            tuple(alone(name, p, SamplingParams(12, 0.7, seed=i))) for i, p in enumerate(prompts)
        }
        assert len(greedy) > 3
        assert len(drawn) > 3
