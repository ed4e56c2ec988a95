"""What a user or a policy of one's own does wrong is said in a sentence, what is broken off midway
loses nothing, and answers that part late are not held up."""

import random
from collections.abc import Callable

import pytest
from test_serving_fuzz import alone, model
from test_serving_operations import Reader, V
from test_serving_operations import alone as said_alone

from twophase.measure.events import EventLog
from twophase.serving import (
    BlockManager,
    ContinuousBatching,
    DynamicBatching,
    Engine,
    EngineConfig,
    Request,
    SamplingParams,
    ShortestFirst,
    Status,
)
from twophase.serving.block_manager import check_conserved
from twophase.serving.simulation import replay

SMALL = EngineConfig(7, 2, max_seqs=3, max_batched_tokens=8)
PARAMS = SamplingParams(max_tokens=6)


def policy(**methods: Callable) -> ContinuousBatching:
    """Whoever came first, but for these methods."""
    own = {name: staticmethod(method) for name, method in methods.items()}
    return type("Own", (ContinuousBatching,), own)()


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        (policy(order=lambda waiting: None), r"orders those that wait, .*; got None"),
        (policy(order=lambda waiting: waiting[0]), "orders those that wait, .*; got request 0"),
        (
            policy(order=lambda waiting: [Request(9, (1,), PARAMS)]),
            r"wait, \[request 0, .*; got \[request 9\]",
        ),
        (policy(order=lambda waiting: [[1]]), r"orders those that wait, .*; got \[\[1\]\]"),
        (policy(order=lambda waiting: [*waiting, *waiting]), r"each once at most; got \[request 0"),
        (policy(may_admit=lambda *seen: None), "may_admit gives True or False; got None"),
        (policy(victim=lambda running: None), "those that run; got None"),
        (policy(victim=lambda running: list(running)), r"those that run; got \[request 0, "),
    ],
)
def test_a_policy_that_decides_what_cannot_be_is_named(own: object, sentence: str) -> None:
    engine = Engine(model("grouped"), SMALL, policy=own)
    for _ in range(4):
        engine.add((0, 1, 0), PARAMS)
    with pytest.raises(ValueError, match=sentence):
        engine.run()
    engine.scheduler.policy = ContinuousBatching()
    assert [request.tokens for request in engine.run()] == [alone("grouped", (0, 1, 0), PARAMS)] * 4


@pytest.mark.parametrize(
    "own",
    [
        policy(may_admit=lambda *seen: False),
        policy(may_admit=lambda waiting, running, seats, now_s: len(running) > 0),
        policy(order=lambda waiting: []),
    ],
)
@pytest.mark.parametrize("serve", [Engine.run, lambda engine: replay(engine, [])])
def test_a_policy_that_would_let_them_wait_for_ever_is_said(own: object, serve: Callable) -> None:
    engine = Engine(model("grouped"), SMALL, policy=own)
    engine.add((0, 1), PARAMS)
    with pytest.raises(
        ValueError, match=r"lets none of \[request 0\] join, however long they wait"
    ):
        serve(engine)
    engine.scheduler.policy = ContinuousBatching()
    assert engine.run()[0].tokens == alone("grouped", (0, 1), PARAMS)


@pytest.mark.parametrize("patience_s", [0.0, 0.02])
def test_a_policy_that_lets_them_wait_for_a_while_is_waited_for(patience_s: float) -> None:
    engine = Engine(model("grouped"), SMALL, policy=DynamicBatching(patience_s))
    engine.add((0, 1), PARAMS)
    (request,) = engine.run()
    assert request.ttft_s >= patience_s


def test_who_cannot_start_yet_has_nothing_computed_and_nothing_shared() -> None:
    """What was found for it is others' until it joins; they may have forgotten it by then."""
    engine = Engine(model("grouped"), EngineConfig(4, 2, 3, 8, prefix_caching=True, watermark=0.5))
    asked = (0, 1, 0, 1, 0)
    engine.add(asked, SamplingParams(max_tokens=3))
    engine.step()
    late = engine.requests[engine.add(asked, SamplingParams(max_tokens=2))]
    assert engine.blocks.find(asked).n_tokens
    while engine.busy:
        if late.status is Status.WAITING:
            assert (late.n_computed, late.n_shared, late.n_missing) == (0, 0, 5)
        engine.step()
    assert late.tokens == alone("grouped", asked, late.params)


@pytest.mark.parametrize(("watermark", "admitted"), [(0.0, 3), (0.28, 3), (0.29, 2), (0.9, 1)])
def test_blocks_under_the_watermark_are_for_those_that_run(watermark: float, admitted: int) -> None:
    """Of 7 blocks each takes 2 when it joins; whoever is alone may take them all."""
    engine = Engine(model("grouped"), EngineConfig(7, 2, 3, 12, watermark=watermark))
    for _ in range(3):
        engine.add((0, 1, 0, 1), SamplingParams(max_tokens=4))
    assert len(engine.scheduler.schedule(0.0).admitted) == admitted


def test_an_order_may_leave_some_out_and_be_a_generator() -> None:
    own = policy(order=lambda waiting: (one for one in waiting[::-1][:1]))
    log = EventLog()
    engine = Engine(model("grouped"), SMALL, policy=own, log=log)
    for _ in range(3):
        engine.add((0, 1), PARAMS)
    engine.run()
    assert next(event["request"] for event in log.select("admit")) == 2


def mishap(**options: object) -> None:
    Engine(model("grouped"), SMALL, **options)


def forked(params: SamplingParams | None) -> None:
    engine = Engine(model("grouped"), SMALL)
    engine.add((0, 1), PARAMS)
    engine.step()
    engine.step()
    before = set(engine.requests)
    try:
        engine.fork(0, params)
    finally:
        assert set(engine.requests) == before
        assert engine.scheduler.seats_taken == 1


@pytest.mark.parametrize(
    ("deed", "sentence"),
    [
        (lambda: mishap(policy=ShortestFirst), r"not its class: write ShortestFirst\(\)"),
        (lambda: mishap(policy=object()), "lacks order, may_admit, victim"),
        (lambda: DynamicBatching(-1), "patience is a number of seconds from 0 on; got -1"),
        (lambda: DynamicBatching(float("nan")), "from 0 on; got nan"),
        (lambda: EngineConfig(watermark=1), "share of the pool, from 0 to below 1; got 1"),
        (lambda: EngineConfig(max_batched_tokens=-5), "whole number of at least 1; got -5"),
        (lambda: Engine("gqa"), r"or LLM\('gqa'\)"),  # type: ignore[arg-type]
        (
            lambda: Engine(model("grouped"), SMALL).add((0,), arrival_s=float("nan")),
            "arrives at a time, in seconds; got nan",
        ),
        (lambda: forked(SamplingParams(max_tokens=1000)), "need 501 blocks, and the pool has 7"),
        (lambda: forked(SamplingParams(max_tokens=2)), "more than the 2 tokens that request 0 has"),
        (lambda: forked(SamplingParams(max_tokens=5, n=2)), "a fork is one answer, .*got n=2"),
    ],
)
def test_what_could_never_run_is_refused_at_once(deed: Callable, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        deed()


def test_an_answer_that_parts_behind_a_long_prompt_is_not_held_up_by_it() -> None:
    """Those that decode go first, wherever they stand among those that run."""
    log = EventLog()
    engine = Engine(model("grouped"), EngineConfig(60, 2, 6, 8), log=log)
    engine.add((0, 1), SamplingParams(max_tokens=8, n=3))
    engine.add((0, 1) * 20, SamplingParams(max_tokens=2))
    engine.run()
    for event in log.select("pass")[1:7]:
        assert event["requests"] == [0, 1, 2, 3]
        assert event["n_new"] == [1, 1, 1, 5]


def test_one_answer_of_several_that_gave_way_needs_one_seat_to_come_back() -> None:
    engine = Engine(model("grouped"), SMALL)
    engine.add((0, 1), PARAMS)
    three = SamplingParams(max_tokens=6, n=3)
    engine.requests[1] = Request(1, (0, 1), three, tokens=[2], parent=7)
    engine.scheduler.waiting.append(engine.requests[1])
    assert len(engine.scheduler.schedule(0.0).admitted) == 2


def test_whoever_wants_several_answers_waits_for_as_many_seats() -> None:
    engine = Engine(model("grouped"), SMALL)
    engine.add((0, 1), PARAMS)
    engine.add((1, 1), SamplingParams(max_tokens=2, n=3))
    assert [request.id for request in engine.scheduler.schedule(0.0).admitted] == [0]


def test_an_heir_waits_where_its_parent_stood() -> None:
    engine = Engine(model("grouped"), SMALL)
    group = engine.add((0, 1), SamplingParams(max_tokens=2, n=2))
    other = engine.add((1, 1), PARAMS)
    engine.abort(group)
    assert [request.id for request in engine.scheduler.waiting] == [group + 1, other]


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize("index", ["hash", "radix"])
def test_whatever_is_broken_off_between_two_calls_loses_nothing(
    preemption: str, index: str
) -> None:
    """Moves, passes, draws and compaction, each interrupted now and then: nothing old is brought
    back, and nothing is found where it is not."""
    broken = done = preempted = 0
    for seed in range(40):
        rng = random.Random(seed)
        config = EngineConfig(
            12, 2, 4, 8, prefix_caching=True, prefix_index=index, preemption=preemption
        )
        runner = Reader(12, 2, 4, has_states=False)
        for name in ("run", "copy_block", "save", "restore"):
            setattr(runner, name, sometimes(rng, getattr(runner, name)))
        engine = Engine(runner, config)
        asked = [tuple(rng.randrange(V) for _ in range(rng.randint(1, 8))) for _ in range(6)]
        for prompt in asked:
            engine.add(prompt, SamplingParams(max_tokens=9))
        for _ in range(3000):
            try:
                (engine.compact if rng.random() < 0.1 else engine.step)()
            except KeyboardInterrupt:
                broken += 1
            check_conserved(engine.blocks)
            assert set(engine._aside) == set(engine.scheduler.saved)
            if not engine.busy:
                break
        for request, prompt in zip(engine.requests.values(), asked, strict=True):
            assert request.tokens == said_alone(prompt, SamplingParams(max_tokens=9))
            done, preempted = done + 1, preempted + request.preemptions
    assert broken > 100
    assert preempted > 20
    assert done == 240


def sometimes(rng: random.Random, call: Callable) -> Callable:
    """The call, or an interruption before or after it."""

    def called(*inputs: object) -> object:
        if rng.random() < 0.05:
            raise KeyboardInterrupt
        found = call(*inputs)
        if rng.random() < 0.02:
            raise KeyboardInterrupt
        return found

    return called


def test_logits_that_are_no_numbers_are_said_and_the_others_go_on() -> None:
    engine = Engine(model("grouped"), SMALL)
    for prompt in ((0, 1), (1, 1)):
        engine.add(prompt, PARAMS)
    run, passes = engine.runner.run, []

    def damaged(*inputs: object) -> dict:
        passes.append(1)
        logits = run(*inputs)
        if len(passes) == 2:
            logits[engine.requests[1]] = logits[engine.requests[1]] * float("nan")
        return logits

    engine.runner.run = damaged
    with pytest.raises(ValueError, match="the logits hold NaN"):
        engine.run()
    assert [request.tokens for request in engine.run()] == [
        alone("grouped", prompt, PARAMS) for prompt in ((0, 1), (1, 1))
    ]


def test_what_comes_back_from_a_swap_was_not_found_in_blocks_of_others() -> None:
    log = EventLog()
    config = EngineConfig(8, 2, 3, 8, preemption="swap")
    engine = Engine(model("grouped"), config, log=log)
    for _ in range(3):
        engine.add((0, 1, 0), SamplingParams(max_tokens=8))
    engine.run()
    assert log.select("preempt")
    assert not any(event["shared"] for event in log.select("admit"))


def test_compaction_that_is_interrupted_leaves_each_block_where_its_table_says() -> None:
    manager = BlockManager(6, 1, prefix_caching=True)
    for seq in range(3):
        manager.allocate(seq, 2)
        manager.remember(seq, [seq, seq])
    manager.free(0)
    cells = {block: seq for seq, table in manager.tables.items() for block in table}

    def copy(source: int, target: int) -> None:
        if len(copied) == 1:
            raise KeyboardInterrupt
        copied.append((source, target))
        cells[target] = cells[source]

    copied: list[tuple[int, int]] = []
    with pytest.raises(KeyboardInterrupt):
        manager.compact(copy)
    check_conserved(manager)
    for seq, table in manager.tables.items():
        assert [cells[block] for block in table] == [seq, seq]
        assert manager.find([seq, seq, 9]).n_tokens == 2
    assert not manager.find([0, 0, 9]).n_tokens
