"""Layers with a window give back what lies behind it, layers with a state hold no block, and no
token changes."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
import torch
from draws import draws
from hypothesis import given
from test_serving_fuzz import POLICIES, SIZES, alone, configs, deeds, hold, model, serve

from twophase.measure.events import EventLog
from twophase.models.config import Config
from twophase.serving import Engine, EngineConfig, SamplingParams
from twophase.serving.block_manager import GONE, BlockManager, check_conserved
from twophase.serving.window_blocks import NoBlocks, WindowBlocks, room_for
from twophase.serving.windows import windows_kept

WINDOW = 3  # of the models of test_serving_fuzz
FREE = EngineConfig(n_blocks=40, block_size=2, max_seqs=3, max_batched_tokens=8, free_windows=True)


def held(engine: Engine) -> list[int]:
    """Blocks of layers with a window, for each sequence."""
    manager = engine.windows or engine.blocks
    return [sum(block != GONE for block in table) for table in manager.tables.values()]


@pytest.mark.parametrize("name", ["windows", "only_windows"])
@draws(12)
@given(config=configs, policy=st.sampled_from(POLICIES), todo=deeds)
def test_blocks_behind_windows_come_back_and_no_token_changes(
    name: str, config: EngineConfig, policy: type, todo: list
) -> None:
    config = replace(config, free_windows=True)
    most = -(-(WINDOW - 1) // config.block_size) + 1

    def holds(engine: Engine) -> None:
        assert max(held(engine), default=0) <= most
        for manager in engine.scheduler.managers:
            check_conserved(manager)

    engine = serve(name, config, policy, todo, holds)
    hold(name, engine)
    for manager in engine.scheduler.managers:
        assert manager.n_free == manager.n_blocks


@pytest.mark.parametrize("name", ["windows", "only_windows"])
def test_a_long_answer_holds_as_much_as_its_window(name: str) -> None:
    engine = Engine(model(name), FREE)
    prompt, params = (0, 1, 1, 0, 1, 0, 0), SamplingParams(max_tokens=50)
    engine.add(prompt, params)
    seen = []
    while engine.busy:
        engine.step()
        seen += held(engine)
    assert max(seen) == 2  # of 28
    assert engine.requests[0].tokens == alone(name, prompt, params)


def test_layers_with_windows_alone_serve_what_no_pool_would_hold() -> None:
    config = replace(FREE, n_blocks=8)
    prompt, params = (0, 1) * 10, SamplingParams(max_tokens=30)
    engine = Engine(model("only_windows"), config)
    engine.add(prompt, params)
    engine.run()
    assert engine.requests[0].tokens == alone("only_windows", prompt, params)
    with pytest.raises(ValueError, match="need 25 blocks, and the pool has 8"):
        Engine(model("only_windows"), replace(config, free_windows=False)).add(prompt, params)
    whole = Engine(model("only_windows"), replace(config, chunked_prefill=False))
    with pytest.raises(ValueError, match="and the pool has 8"):
        whole.add(prompt, params)


def test_the_pool_of_windows_suffices_for_as_many_sequences_as_there_are_seats() -> None:
    log, config = EventLog(), replace(FREE, n_blocks=200)
    engine = Engine(model("windows"), config, log=log)
    assert engine.windows is not None
    assert engine.windows.n_blocks < 20
    for i in range(8):
        engine.add((i % 2,) * (5 + i), SamplingParams(max_tokens=20))
    engine.run()
    assert not log.select("preempt")


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_a_model_of_states_takes_no_blocks(preemption: str) -> None:
    config = EngineConfig(1, 2, max_seqs=2, max_batched_tokens=4, preemption=preemption)
    engine = Engine(model("only_states"), config)
    asked = [((0, 1) * n, SamplingParams(max_tokens=9)) for n in (1, 4, 9)]
    for one in asked:
        engine.add(*one)
    while engine.busy:
        engine.step()
        assert engine.blocks.n_free == 1
        assert not any(engine.blocks.tables.values())
    for request, one in zip(engine.requests.values(), asked, strict=True):
        assert request.tokens == alone("only_states", *one)
        assert not request.preemptions


def test_layers_that_share_keys_share_their_window() -> None:
    kinds = ("sliding", "sliding", "gqa")
    sharing = Config(**SIZES, attention=kinds, window=WINDOW, kv_source=(0, 0, 2))
    assert windows_kept(sharing) == {0: WINDOW, 2: None}
    assert windows_kept(model("only_states").config) == {}


def test_each_kind_of_model_gets_its_kind_of_blocks() -> None:
    kinds = {
        name: tuple(type(part) for part in room_for(FREE, model(name).config))
        for name in ("grouped", "windows", "only_windows", "only_states", "states")
    }
    nothing = type(None)
    assert kinds == {
        "grouped": (BlockManager, nothing),
        "windows": (BlockManager, WindowBlocks),
        "only_windows": (WindowBlocks, nothing),
        "only_states": (NoBlocks, nothing),
        "states": (BlockManager, nothing),
    }
    assert room_for(replace(FREE, free_windows=False), model("windows").config).windows is None


def test_prefixes_and_freed_windows_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="a shared prefix needs the blocks"):
        EngineConfig(prefix_caching=True, free_windows=True)


def test_bits_alone_and_in_company_are_equal_behind_a_window() -> None:
    torch.manual_seed(0)
    config = replace(FREE, batch_invariant=True)
    together = Engine(model("windows"), config)
    prompts = [(0, 1, 1), (1, 0, 0, 1, 0)]
    for prompt in prompts:
        together.add(prompt, SamplingParams(max_tokens=20))
    together.run()
    for i, prompt in enumerate(prompts):
        assert together.requests[i].tokens == alone("windows", prompt, SamplingParams(20))
