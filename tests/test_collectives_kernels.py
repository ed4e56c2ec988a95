"""Ranks in one process: they meet or are told why not; the ring does what the protocol says, and
its bytes are those that a trace counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.kernels.collectives import (
    CollectiveError,
    Comm,
    RankError,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    simulate,
)
from twophase.measure.collectives import Tracer, sent_bytes, waited_s
from twophase.measure.events import EventLog

RANKS = st.integers(1, 8)


def values(n: int, *shape: int) -> list[torch.Tensor]:
    """Whole numbers, of which every sum is exact."""
    generator = torch.Generator().manual_seed(n)
    return [torch.randint(-99, 99, shape, generator=generator).double() for _ in range(n)]


@given(n=RANKS, rows=st.integers(0, 11), columns=st.integers(0, 5), dim=st.integers(-2, 1))
@draws(40)
def test_collectives_are_what_their_names_say_for_every_size(n, rows, columns, dim):
    xs = values(n, rows, columns)
    total = torch.stack(xs).sum(0)

    def rank(comm: Comm) -> None:
        x = xs[comm.rank]
        assert torch.equal(comm.all_reduce(x), total)
        assert torch.equal(comm.all_gather(x, dim), torch.cat(xs, dim))
        chunk = total.tensor_split(n, dim)[comm.rank]
        assert torch.equal(comm.reduce_scatter(x, dim), chunk)
        sizes = [c.shape[dim] for c in total.tensor_split(n, dim)]
        assert torch.equal(comm.all_gather(chunk, dim, sizes), total)
        came = comm.all_to_all([x[: to % (rows + 1)] for to in range(n)])
        assert all(
            torch.equal(c, y[: comm.rank % (rows + 1)]) for c, y in zip(came, xs, strict=True)
        )
        assert torch.equal(comm.broadcast(x, n - 1), xs[-1])
        comm.barrier()

    simulate(n, rank)


@given(n=RANKS, rows=st.integers(0, 11), columns=st.integers(0, 5), dim=st.integers(-2, 1))
@draws(40)
def test_the_ring_equals_the_protocol_and_sends_the_bytes_that_a_trace_counts(
    n, rows, columns, dim
):
    xs = values(n, rows, columns)
    pairs: list[tuple[str, Callable[..., Any], tuple[int, ...]]] = [
        ("all_reduce", ring_all_reduce, ()),
        ("reduce_scatter", ring_reduce_scatter, (dim,)),
        ("all_gather", ring_all_gather, (dim,)),
    ]

    def rank(comm: Comm) -> None:
        for name, ring, more in pairs:
            ours, theirs = Tracer(comm), Tracer(comm)
            x = xs[comm.rank]
            assert torch.equal(ring(ours, x, *more), getattr(theirs, name)(x, *more))
            assert sent_bytes(ours.log) == sent_bytes(theirs.log)
            sends = [e for e in ours.log if e["op"] == "send"]
            assert len(sends) == (n - 1) * (2 if name == "all_reduce" else 1)
            assert {e["peer"] for e in sends} <= {(comm.rank + 1) % n}
        ours, theirs = Tracer(comm), Tracer(comm)  # chunks that differ, some of them empty
        chunks = xs[0].tensor_split(n, dim)
        found = theirs.all_gather(chunks[comm.rank], dim, [c.shape[dim] for c in chunks])
        assert torch.equal(ring_all_gather(ours, chunks[comm.rank], dim), found)
        assert sent_bytes(ours.log) == sent_bytes(theirs.log)

    simulate(n, rank)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8])
def test_over_all_ranks_an_all_reduce_sends_2n_minus_2_times_its_tensor_whatever_the_rest(n):
    def rank(comm: Comm) -> EventLog:
        tracer = Tracer(comm)
        tracer.all_reduce(torch.ones(5, 13))
        tracer.all_gather(torch.ones(5, 13))
        tracer.reduce_scatter(torch.ones(5, 13), 1)
        tracer.broadcast(torch.ones(5, 13), 0)
        tracer.all_to_all([torch.ones(5, 13)] * n)
        return tracer.log

    nbytes, logs = 5 * 13 * 4, simulate(n, rank)
    events = list(EventLog.merged(logs))
    sent = {op: sent_bytes(e for e in events if e["op"] == op) for op in {e["op"] for e in events}}
    assert sent == {
        "all_reduce": 2 * (n - 1) * nbytes,
        "all_gather": (n - 1) * n * nbytes,
        "reduce_scatter": (n - 1) * nbytes,
        "broadcast": (n - 1) * nbytes,
        "all_to_all": (n - 1) * n * nbytes,
    }


def test_every_rank_has_the_same_bits_and_sums_go_in_rank_order():
    xs = [torch.randn(1001, generator=torch.Generator().manual_seed(r)) for r in range(5)]
    sums = simulate(5, lambda comm: comm.all_reduce(xs[comm.rank]))
    in_order = xs[0]
    for x in xs[1:]:
        in_order = in_order + x
    assert all(torch.equal(found, in_order) for found in sums)
    rings = simulate(5, lambda comm: ring_all_reduce(comm, xs[comm.rank]))
    assert all(torch.equal(found, rings[0]) for found in rings)
    # four additions of numbers below 4, each rounded to 2⁻²⁴ of them
    torch.testing.assert_close(rings[0], in_order, rtol=0, atol=4 * 16 * 2**-24)


def test_what_a_rank_gave_or_got_is_its_own():
    def rank(comm: Comm) -> torch.Tensor:
        x = torch.full((3,), float(comm.rank))
        y = comm.all_reduce(x)
        x += 100  # the last to come goes on first
        y += comm.rank
        comm.send(x, (comm.rank + 1) % 3)
        x += 100
        return torch.stack([y, comm.receive((comm.rank - 1) % 3), comm.broadcast(x, 0)])

    for r, (y, letter, root) in enumerate(simulate(3, rank)):
        assert y.tolist() == [3.0 + r] * 3
        assert letter.tolist() == [100.0 + (r - 1) % 3] * 3
        assert root.tolist() == [200.0] * 3


def test_groups_number_their_ranks_anew_and_keep_their_calls_apart():
    def rank(comm: Comm) -> tuple[float, float, list[int], list[str]]:
        tracer = Tracer(comm)
        x = tracer.split([[0, 1, 2], [3, 4, 5]], "X")
        y = tracer.split([[3, 0], [1, 4], [2, 5]], "Y")
        mine = torch.tensor([float(comm.rank)])
        tracer.at(layer=3, phase="decode")
        row = x.all_reduce(mine) if comm.rank != 4 else None
        column = y.all_gather(mine)
        if row is None:  # in another order: another group, and nobody minds
            row = x.all_reduce(mine)
        y.send(mine, 1 - y.rank)
        assert y.receive(1 - y.rank).item() == (comm.rank + 3) % 6
        events = [e for e in tracer.log if e["op"] == "send"]
        assert (events[0]["peer"], events[0]["layer"]) == ((comm.rank + 3) % 6, 3)
        return row.item(), column.tolist(), [x.rank, y.rank], [e["axis"] for e in tracer.log]

    found = simulate(6, rank)
    assert [f[0] for f in found] == [3.0] * 3 + [12.0] * 3
    assert found[0][1] == found[3][1] == [3.0, 0.0]
    assert found[4][2:] == ([1, 1], ["Y", "X", "Y", "Y"])
    with pytest.raises(RankError, match="stands in one group, once"):
        simulate(2, lambda comm: comm.split([[0]]))


def one(comm: Comm) -> torch.Tensor:
    return torch.ones(2) * comm.rank


APART = {
    "another collective": (
        lambda comm: comm.all_reduce(one(comm)) if comm.rank else comm.all_gather(one(comm)),
        "rank 0 calls all_gather of float32 \\[2\\] along axis 0 and rank 1 all_reduce of float32",
    ),
    "another shape": (
        lambda comm: comm.all_reduce(torch.ones(2 + comm.rank)),
        "float32 \\[2\\] and rank 1 all_reduce of float32 \\[3\\]",
    ),
    "another dtype": (
        lambda comm: comm.all_reduce(torch.ones(2, dtype=[torch.float64, torch.int64][comm.rank])),
        "do not meet",
    ),
    "another root": (lambda comm: comm.broadcast(one(comm), comm.rank), "do not meet"),
    "another axis": (
        lambda comm: comm.reduce_scatter(torch.ones(2, 2), comm.rank),
        "do not meet",
    ),
    "one has ended": (
        lambda comm: comm.all_reduce(one(comm)) if comm.rank else None,
        "rank 1 waits in all_reduce for rank 0, but rank 0 has ended",
    ),
    "each waits for the other": (
        lambda comm: comm.receive(1 - comm.rank),
        "rank 0 waits in receive from rank 1, rank 1 waits in receive from rank 0;",
    ),
    "one waits elsewhere": (
        lambda comm: comm.barrier() if comm.rank else comm.receive(1),
        "rank 0 waits in receive from rank 1, rank 1 waits in barrier for rank 0",
    ),
    "nobody receives": (
        lambda comm: comm.send(one(comm), 1) if comm.rank == 0 else None,
        "rank 0 sent float32 \\[2\\] to rank 1, which never received it",
    ),
}


@pytest.mark.parametrize("name", APART)
def test_ranks_that_do_not_meet_are_told_apart_in_a_sentence(name):
    function, says = APART[name]
    with pytest.raises(CollectiveError, match=says) as told:
        simulate(2, function)
    assert str(told.value).count(".") == 1


def test_the_error_of_one_rank_ends_all_with_its_number():
    reached = []

    def rank(comm: Comm) -> None:
        comm.barrier()
        if comm.rank == 2:
            raise KeyError("weights")
        try:
            comm.all_reduce(torch.ones(1))
        except Exception:
            reached.append(comm.rank)
        reached.append(comm.rank)

    with pytest.raises(RankError, match="rank 2: KeyError: 'weights'") as told:
        simulate(4, rank)
    assert told.value.rank == 2
    assert isinstance(told.value.__cause__, KeyError)
    assert not reached


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda comm: comm.send(torch.ones(1), 3), "ranks 0 to 2; got 3"),
        (lambda comm: comm.broadcast(torch.ones(1), -1), "ranks 0 to 2; got -1"),
        (lambda comm: comm.all_gather(torch.ones(1), 1), "has no axis 1"),
        (lambda comm: comm.all_gather(torch.ones(2), 0, [1, 2, 2]), "`sizes` says how long"),
        (lambda comm: comm.all_to_all([torch.ones(1)] * 2), "a tensor for each of the 3 ranks"),
    ],
)
def test_bad_input_is_a_sentence(function, says):
    with pytest.raises(RankError, match=says):
        simulate(3, function)


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "2"])
def test_a_world_has_at_least_one_rank(n):
    with pytest.raises(ValueError, match="at least 1 rank"):
        simulate(n, lambda comm: None)


def test_ranks_compute_as_their_caller_does_and_share_its_arguments():
    def rank(comm: Comm, shared: list[int]) -> tuple[bool, bool, int]:
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), id(shared)

    shared: list[int] = []
    assert simulate(2, rank, shared) == [(True, False, id(shared))] * 2
    with torch.inference_mode():
        assert simulate(2, rank, shared) == [(False, True, id(shared))] * 2


def test_one_log_for_all_ranks_has_the_same_order_every_time():
    def log() -> list[tuple[int, str]]:
        events = EventLog()
        simulate(4, lambda comm: ring_all_reduce(Tracer(comm, events), torch.ones(8)))
        return [(e["rank"], e["op"]) for e in events]

    assert log() == log()
    assert len(log()) == 4 * 2 * 2 * 3


def test_a_slow_rank_is_who_the_others_waited_for():
    started = time.perf_counter()

    def rank(comm: Comm) -> EventLog:
        tracer = Tracer(comm, EventLog(started))
        tracer.barrier()
        if comm.rank == 1:
            time.sleep(0.05)
        tracer.all_reduce(torch.ones(3))
        return tracer.log

    waits = waited_s(EventLog.merged(simulate(3, rank)))
    in_sum = {e["rank"]: waited for e, waited in waits if e["op"] == "all_reduce"}
    assert in_sum[1] < min(in_sum[0], in_sum[2])
    assert len(waits) == 6


def test_a_place_has_three_names():
    simulate(1, lambda comm: Tracer(comm).at(step=1, phase="prefill", layer=None))
    with pytest.raises(RankError, match="a place is said by step, phase, layer; got 'row'"):
        simulate(1, lambda comm: Tracer(comm).at(row=1))
