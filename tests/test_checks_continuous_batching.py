"""The exercises of continuous batching beside the engine: references say what scheduler, kernels
and reports say, and what the tasks print is what the checks take it for."""

from __future__ import annotations

import random
import re
from itertools import permutations
from pathlib import Path

import nbformat
import pytest
import torch

from twophase.checks.continuous_batching import (
    admit,
    chart,
    finishing,
    percentiles,
    ragged,
    starves,
    step,
)
from twophase.kernels.attention import causal_attention
from twophase.serving import (
    BlockManager,
    ContinuousBatching,
    Engine,
    EngineConfig,
    Policy,
    Request,
    SamplingParams,
    Scheduler,
    ShortestFirst,
    StaticBatching,
    Status,
    workload,
)
from twophase.serving.simulation import SimulatedRunner, VirtualClock

NOTEBOOK = Path(__file__).resolve().parent.parent / "solutions" / "15_continuous_batching.ipynb"


def task(slug: str) -> str:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    (text,) = (c.source for c in cells if c.id == f"continuous_batching-{slug}-task")
    return str(text)


def steps_of(lengths: list[int], seats: int, policy: Policy) -> list[int]:
    """After which pass of a second the engine has each answer's last token."""
    clock = VirtualClock()
    runner = SimulatedRunner(lambda starts, n_new: 1.0, clock)
    config = EngineConfig(
        n_blocks=64 * seats, max_seqs=seats, max_batched_tokens=max(seats, 64), block_size=64
    )
    engine = Engine(runner, config, policy=policy, clock=clock)
    ids = [engine.add([0], SamplingParams(max_tokens=n)) for n in lengths]
    while engine.busy:
        engine.step()
    return [round(engine.requests[i].times_s[-1]) for i in ids]


@pytest.mark.parametrize("seed", range(3))
def test_the_predicted_steps_are_those_of_the_engine(seed: int) -> None:
    for case in finishing.cases(random.Random(seed)):
        lengths, seats = case.args
        if len(lengths) > 50 or max(lengths, default=0) > 50 or seats > 50:
            continue
        found = finishing.reference(lengths, seats)
        assert found["continuous"] == steps_of(lengths, seats, ContinuousBatching())
        if lengths:  # a static batch hands all of its answers out with the last of them
            last = steps_of(lengths, seats, StaticBatching())
            batches = [last[i : i + seats] for i in range(0, len(last), seats)]
            assert found["static"] == [max(b) for b in batches for _ in b]


@pytest.mark.parametrize("seed", range(3))
def test_the_reference_of_a_pass_schedules_as_the_scheduler(seed: int) -> None:
    """Where prompts that are being read stand behind those that decode, as they do there."""
    compared = 0
    for case in step.cases(random.Random(seed)):
        running, waiting, seats, budget, chunked = case.args
        missing = [r["missing"] > 1 for r in running]
        whole = chunked or all(r["missing"] <= budget for r in waiting)
        if missing != sorted(missing) or budget < seats or not whole:
            continue
        blocks = BlockManager(300_000, 1)
        config = EngineConfig(300_000, 1, seats, budget, chunked_prefill=chunked)
        scheduler = Scheduler(config, blocks)
        for r in running:
            scheduler.running.append(_request(r, Status.RUNNING))
            blocks.allocate(r["id"], 0)
        scheduler.waiting += [_request(r, Status.WAITING) for r in waiting]
        found = [(r.id, n) for r, n in scheduler.schedule(0.0).n_new.items()]
        if not chunked and any(r["missing"] > 1 for r in running):
            continue  # the task's running prompts are cut in any case
        assert step.reference(*case.args) == found, case.name
        compared += 1
    assert compared >= 15


def _request(r: dict[str, int], status: Status) -> Request:
    params = SamplingParams(max_tokens=1)
    return Request(r["id"], (0,) * r["missing"], params, status=status)


def test_the_reference_of_ragged_attention_is_the_kernel_for_each_request() -> None:
    for case in ragged.cases(random.Random(1)):
        q, k, v, caches, n_new = case.args
        found, first = ragged.reference(*case.args), 0
        for (held_k, held_v), n in zip(caches, n_new, strict=True):
            row = slice(first, first + n)
            first += n
            if n:
                keys, values = torch.cat([held_k, k[row]]), torch.cat([held_v, v[row]])
                alone = causal_attention(q[None, row], keys[None], values[None])[0]
                torch.testing.assert_close(found[row], alone, rtol=1e-4, atol=1e-5)
        assert first == len(found)


def test_the_reference_of_the_report_is_the_engines_summary() -> None:
    for case in percentiles.cases(random.Random(1)):
        (log,) = case.args
        found = percentiles.reference(log)
        requests = [
            Request(i, (0,), SamplingParams(), r["arrival_s"], times_s=list(r["times_s"]))
            for i, r in enumerate(log)
        ]
        begun = [r for r in requests if r.times_s]
        values = {
            "ttft_s": [r.ttft_s for r in begun],
            "tpot_s": [gap for r in begun for gap in r.tpot_list_s],
        }
        for name, all_of_them in values.items():
            if all_of_them:
                assert found[name] == list(workload.percentiles(all_of_them).values())
            else:
                assert found[name] == [None] * 3
        assert found["unanswered"] == len(requests) - len(begun)


def test_the_printed_chart_is_the_one_that_the_check_shows_and_has_a_request_in_two_slots() -> None:
    rows = re.findall(r"^Slot \d: (.*)$", task("chart"), flags=re.M)
    assert tuple(rows) == chart.PRINTED
    made, lengths = chart.CHARTS["the chart of the sources"]
    assert [" ".join(row) for row in made] == rows
    assert chart.reference(made, lengths) == "two slots"


def test_what_continuous_batching_makes_is_a_schedule() -> None:
    rng = random.Random(2)
    for _ in range(30):
        lengths = [rng.randrange(1, 7) for _ in range(rng.randrange(1, 12))]
        assert chart.reference(*chart.served(rng, lengths, rng.randrange(1, 4))) == "fine"


def test_the_printed_rule_is_the_one_that_the_check_serves_by() -> None:
    """And it is the engine's policy that takes the shortest first."""
    (code,) = re.findall(r"```python\n(.*?)```", task("starves"), flags=re.S)
    names: dict[str, object] = {}
    exec(code, names)
    rng = random.Random(3)
    for _ in range(20):
        trace = sorted(
            ({"at_s": rng.randrange(9), "tokens": rng.randrange(1, 5)} for _ in range(9)),
            key=lambda one: one["at_s"],
        )
        order, _ = starves.waits(trace, printed=True)
        left, now = list(range(9)), 0
        served = []
        while left:
            there = [i for i in left if trace[i]["at_s"] <= now]
            if there:
                rows = [{"id": i, "tokens": trace[i]["tokens"]} for i in there]
                served.append(names["next_id"](rows, now, 5))  # type: ignore[operator]
                requests = [Request(r["id"], (0,) * r["tokens"], SamplingParams()) for r in rows]
                assert ShortestFirst().order(requests)[0].id == served[-1]
                left.remove(served[-1])
            now += 1
        assert served == order


def test_no_order_of_a_small_queue_has_more_requests_in_time() -> None:
    rng = random.Random(4)
    for _ in range(40):
        queue = admit._drawn(rng, rng.randrange(1, 6), rng.uniform(0.5, 3))
        ids = [r["id"] for r in queue]
        orders = (order for n in range(len(ids) + 1) for order in permutations(ids, n))
        most = max(admit.in_time(queue, list(order)) for order in orders)
        assert admit.in_time(queue, admit.reference(queue)) == most
