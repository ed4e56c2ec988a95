"""What a simulated engine does is what the engine does, at the prices of theory."""

import random

import pytest

from twophase.measure.events import EventLog
from twophase.models import checkpoints
from twophase.serving import Engine, EngineConfig, SamplingParams
from twophase.serving.simulation import SimulatedRunner, VirtualClock, replay
from twophase.serving.workload import Arrival
from twophase.theory import catalog
from twophase.theory.continuous_batching import (
    busy_share,
    chunk_flops,
    least_steps,
    mean_wait_s,
    pass_s,
    static_steps,
)
from twophase.theory.deployment import Deployment
from twophase.theory.paging import (
    best_block_size,
    blocks_of,
    internal_waste_tokens,
    mean_internal_waste_tokens,
    overhead_bytes,
    swap_s,
)
from twophase.theory.workload import Workload

LLAMA = Deployment(catalog.model("Llama-3-8B"), catalog.hardware("h100"), Workload())


def simulated(config: EngineConfig, pass_time, **options) -> tuple[Engine, VirtualClock]:
    clock = VirtualClock()
    return Engine(SimulatedRunner(pass_time, clock), config, clock=clock, **options), clock


def test_a_pass_of_decodes_is_the_planners_step_and_a_whole_prompt_its_prefill() -> None:
    for B, S in ((1, 500), (64, 2000), (300, 9000)):
        assert pass_s(LLAMA, [S - 1] * B, [1] * B) == pytest.approx(
            LLAMA.step(B, S).overlapped_s, rel=1e-12
        )
    for overlap, name in ((True, "overlapped_s"), (False, "sum_s")):
        whole = pass_s(LLAMA, [0], [777], overlap=overlap)
        assert whole == pytest.approx(getattr(LLAMA.prefill(777), name), rel=1e-12)


def test_chunks_multiply_as_much_as_the_whole_prompt() -> None:
    chunks = sum(chunk_flops(LLAMA, start, 100) for start in range(0, 1000, 100))
    assert chunks == pytest.approx(LLAMA.prefill_flops(1000), rel=1e-12)


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_the_simulation_makes_the_passes_of_the_engine(preemption: str) -> None:
    """Same requests, same lengths: the same schedule, pass by pass."""
    rng, logs = random.Random(0), [EventLog(), EventLog()]
    asked = [([rng.randrange(2)] * rng.randrange(1, 20), rng.randrange(1, 25)) for _ in range(8)]
    config = EngineConfig(14, 4, 4, 11, preemption=preemption)
    real = Engine(checkpoints.load("gqa"), config, log=logs[0])
    priced, _ = simulated(config, lambda starts, n_new: 1.0, log=logs[1])
    for engine in (real, priced):
        for prompt, n in asked:
            engine.add(prompt, SamplingParams(max_tokens=n))
        engine.run()
    kinds = ("admit", "preempt", "pass", "copy_block")
    first, second = ([event.fields for event in log.select(*kinds)] for log in logs)
    assert first == second
    assert any("how" in fields for fields in first)


def test_times_of_a_simulation_are_the_sums_of_its_passes() -> None:
    engine, clock = simulated(EngineConfig(64, 4, 2, 8), lambda starts, n_new: 0.5 * sum(n_new))
    requests = replay(engine, [Arrival(1.0, (0,) * 4, 3), Arrival(100.0, (1,), 2)], clock)
    assert requests[0].times_s == [3.0, 3.5, 4.0]
    assert requests[1].times_s == [100.5, 101.0]
    assert requests[0].ttft_s == 2.0


def test_a_queue_of_one_seat_waits_as_pollaczek_and_khinchine_say() -> None:
    """4,000 requests at 70 % load, one at a time: within four standard errors, from batches of
    500."""
    rng, at_s, trace = random.Random(1), 0.0, []
    for _ in range(4000):
        at_s += rng.expovariate(0.7)
        trace.append(Arrival(at_s, (0,), rng.choice((1, 3))))
    config = EngineConfig(8, 4, 1, 8)
    engine, clock = simulated(config, lambda starts, n_new: 0.5)
    requests = replay(engine, trace, clock)
    waits = [request.ttft_s - 0.5 for request in requests]
    groups = [sum(waits[i : i + 500]) / 500 for i in range(0, 4000, 500)]
    mean = sum(groups) / 8
    error = (sum((g - mean) ** 2 for g in groups) / 7 / 8) ** 0.5
    assert busy_share(0.7, 1.0) == 0.7
    assert abs(mean - mean_wait_s(0.7, 1.0, 1.25)) < 4 * error
    assert mean > 0.5


def test_a_server_that_is_always_busy_lets_wait_for_ever() -> None:
    assert mean_wait_s(1.0, 1.0, 1.0) == float("inf")
    with pytest.raises(ValueError, match="at most"):
        busy_share(2.0, 1.0)


def test_static_batches_take_the_steps_of_their_longest() -> None:
    assert static_steps([2, 20, 2, 20, 2], 2) == 20 + 20 + 2
    assert least_steps([2, 20, 2, 20, 2], 2) == 23
    assert least_steps([2, 50], 2) == 50
    with pytest.raises(ValueError, match="at least one seat"):
        static_steps([1], 0)


def test_blocks_hold_every_token_and_waste_less_than_one_block() -> None:
    for size in (1, 4, 16):
        empty = [internal_waste_tokens(n, size) for n in range(1, 16 * size + 1)]
        assert max(empty) == size - 1
        assert sum(empty) / len(empty) == mean_internal_waste_tokens(size)
    assert [blocks_of(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_the_best_block_is_where_the_overhead_is_least() -> None:
    best = best_block_size(2048, 131072, 4e6)
    costs = {size: overhead_bytes(2048, size, 131072, 4e6) for size in range(1, 2048)}
    assert abs(min(costs, key=costs.get) - best) <= 1
    assert swap_s(1000, 131072, 50e9) == pytest.approx(2 * 1000 * 131072 / 50e9)


def test_a_trace_that_goes_back_in_time_is_refused() -> None:
    engine, clock = simulated(EngineConfig(), lambda starts, n_new: 1.0)
    with pytest.raises(ValueError, match="in the order of their times"):
        replay(engine, [Arrival(2.0, (0,), 1), Arrival(1.0, (0,), 1)], clock)


@pytest.mark.parametrize(("starts", "n_new"), [([], []), ([0], [0]), ([1, 2], [1]), ([-1], [1])])
def test_a_pass_without_tokens_is_refused(starts: list[int], n_new: list[int]) -> None:
    with pytest.raises(ValueError, match="a pass needs a start"):
        pass_s(LLAMA, starts, n_new)
