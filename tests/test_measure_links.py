"""What a trace says of the links it went over, on logs that were made up, where the answer is
known; and that a trace is priced as the theory prices the messages it is made of."""

from __future__ import annotations

import pytest
import torch

from twophase.kernels.collectives import Comm, simulate
from twophase.measure.collectives import Tracer, meetings, met_s, waited_s
from twophase.measure.events import EventLog
from twophase.measure.links import FittedLink, Point, fit_link, points, price_s, sending_s
from twophase.models.config import Config
from twophase.parallel.price import price_layouts, table
from twophase.theory.links import LINKS, Link

SLOW = Link("a wire", 2e6, 3e-4)


def made_up(calls: list[tuple[str, int, int]], link: Link, late_s: float = 0.0) -> EventLog:
    """Collectives of so many ranks and bytes that take what the theory says from the moment that
    the last rank is there; rank r comes r·late_s after rank 0."""
    log, now = EventLog(0.0), 0.0
    for op, n, n_bytes in calls:
        took = link.time_s(op, n_bytes, (n,))
        end = now + (n - 1) * late_s + took
        for rank in range(n):
            start = now + rank * late_s
            fields = {"op": op, "axis": "", "group": list(range(n)), "peer": None, "step": 0}
            fields |= {"n_bytes": n_bytes, "sent_bytes": 0, "phase": "", "layer": None}
            log._add(
                "collective",
                end,
                {"rank": rank, **fields, "start_s": start, "seconds": end - start},
            )
        now = end
    return log


CALLS = [
    (op, n, n_bytes)
    for op in ("all_reduce", "all_gather", "all_to_all")
    for n in (2, 3)
    for n_bytes in (600, 6_000, 60_000, 600_000)
]


def test_a_fit_finds_the_link_that_made_the_times_however_late_ranks_come():
    fitted = fit_link(made_up(CALLS * 3, SLOW, late_s=0.7))
    assert fitted.link.hop_s == pytest.approx(SLOW.hop_s, rel=1e-6)
    assert fitted.link.sent_bytes_per_s == pytest.approx(SLOW.sent_bytes_per_s, rel=1e-6)
    assert max(fitted.worst, fitted.worst_held_out) < 1e-6


def test_a_fit_says_by_how_much_it_misses_points_that_it_has_not_seen():
    honest = made_up(CALLS, SLOW)
    crooked = made_up([(op, n, n_bytes) for op, n, n_bytes in CALLS if n_bytes != 6_000], SLOW)
    late = EventLog(0.0)
    for event in crooked:
        late._add(event.kind, event.t_s, event.fields)
    last = late._events[-1].t_s
    for event in made_up(
        [(op, n, 6_000) for op, n, b in CALLS if b == 6_000], Link("x", 1e6, 9e-4)
    ):
        late._add(
            event.kind,
            event.t_s + last,
            {**event.fields, "start_s": event["start_s"] + last},
        )
    assert fit_link(honest).worst_held_out < 1e-6 < 0.2 < fit_link(late).worst_held_out


def test_the_quartiles_of_a_point_hold_the_middle_half_of_its_calls():
    found = points(made_up([("all_reduce", 2, 100)] * 7, SLOW))
    assert [(p.op, p.n_ranks, p.n_bytes) for p in found] == [("all_reduce", 2, 100)]
    low, high = found[0].quartiles_s
    assert low <= found[0].seconds <= high


@pytest.mark.parametrize("calls", [[], [("all_reduce", 2, 100)] * 9, [("all_reduce", 1, 100)] * 9])
def test_a_trace_that_cannot_tell_hops_from_bytes_is_refused(calls):
    with pytest.raises(ValueError, match="at least 4 sizes"):
        fit_link(made_up(calls, SLOW))


def test_times_that_do_not_grow_with_bytes_are_refused():
    class Falling(Link):
        def time_s(self, kind, array_bytes, sides):
            return 1e-3 / (1 + array_bytes)

    with pytest.raises(ValueError, match="do not grow with its bytes"):
        fit_link(made_up(CALLS, Falling("falls", 1.0, 1.0)))


@pytest.mark.parametrize("link", LINKS, ids=lambda link: link.name)
def test_a_trace_is_priced_as_the_theory_prices_each_of_its_messages(link):
    def rank(comm: Comm, events: EventLog) -> None:
        tracer = Tracer(comm, events)
        tracer.all_reduce(torch.ones(600))
        tracer.all_gather(torch.ones(300))
        tracer.reduce_scatter(torch.ones(600))
        tracer.all_to_all([torch.ones(50)] * 4)
        tracer.broadcast(torch.ones(500), 0)
        if comm.rank == 1:
            tracer.send(torch.ones(700), 2)
        if comm.rank == 2:
            tracer.receive(1)

    log = EventLog()
    simulate(4, rank, log)
    whole = [
        ("all_reduce", 2400),
        ("all_gather", 4800),
        ("reduce_scatter", 2400),
        ("all_to_all", 800),
        ("all_gather", 2000),
        ("send", 2800),
    ]
    expected = sum(link.time_s(kind, n_bytes, (4,)) for kind, n_bytes in whole)
    assert price_s(log, link) == pytest.approx(expected, rel=1e-12)


def test_the_fullest_rank_prices_an_all_to_all():
    def rank(comm: Comm, events: EventLog) -> None:
        Tracer(comm, events).all_to_all([torch.ones(10 + 90 * comm.rank)] * 2)

    log = EventLog()
    simulate(2, rank, log)
    assert price_s(log, SLOW) == SLOW.time_s("all_to_all", 2 * 100 * 4, (2,))


def test_the_clock_of_a_trace_begins_when_the_last_rank_is_there():
    log = made_up([("all_reduce", 3, 6_000)] * 2, SLOW, late_s=0.5)
    took = SLOW.time_s("all_reduce", 6_000, (3,))
    assert sending_s(log) == pytest.approx(2 * took)
    assert [met_s(calls) for calls in meetings(log)] == pytest.approx([took, took])
    assert [waited for _, waited in waited_s(log)] == pytest.approx([1.0, 0.5, 0.0] * 2)


def test_letters_meet_in_the_order_they_were_sent_each_pair_by_itself():
    def rank(comm: Comm, events: EventLog) -> None:
        tracer = Tracer(comm, events)
        for k in range(2):
            tracer.send(torch.ones(1 + k + 10 * comm.rank), 1 - comm.rank)
        for _ in range(2):
            tracer.receive(1 - comm.rank)

    log = EventLog()
    simulate(2, rank, log)
    found = [[(e["rank"], e["op"], e["n_bytes"] // 4) for e in calls] for calls in meetings(log)]
    assert sorted(map(sorted, found)) == [
        [(0, "receive", 11), (1, "send", 11)],
        [(0, "receive", 12), (1, "send", 12)],
        [(0, "send", 1), (1, "receive", 1)],
        [(0, "send", 2), (1, "receive", 2)],
    ]


def test_layouts_are_priced_by_what_their_decode_steps_send():
    fitted = FittedLink(SLOW, (Point("all_reduce", 2, 1, 1.0, (1.0, 1.0)),), 0.0, 0.0)
    (found,) = price_layouts(2, "gqa", ["tensor"], n_new=2, here=fitted.link)
    c = Config(L=4, D=128, F=256, N=4, K=2, H=32)
    stream, logits = 2 * c.D * 4, 2 * c.V * 4
    assert found.sent_bytes == (2 * c.L + 1) * 2 * stream + logits
    step = (2 * c.L + 1) * SLOW.time_s("all_reduce", stream, (2,))
    assert found.predicted_s == pytest.approx(step + SLOW.time_s("all_gather", logits, (2,)))
    assert found.clock_s > 0
    assert "Ethernet 100G" in str(table([found]))
    with pytest.raises(ValueError, match="has none to deal out"):
        price_layouts(2, "gqa", ["experts"], n_new=2, here=fitted.link)
