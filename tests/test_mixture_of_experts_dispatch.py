"""Experts in bins and in one kernel: against the sorted loop, against lists filled by hand, by the
meter and by events."""

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.kernels import expert_capacity as bins
from twophase.kernels.collectives import Comm, RankError, simulate
from twophase.kernels.expert_parallel import expert_parallel
from twophase.kernels.grouped_experts import run_grouped
from twophase.kernels.mixture_of_experts import route, run_experts
from twophase.measure import Meter
from twophase.measure.collectives import Tracer
from twophase.measure.visits import expert_visits
from twophase.theory.mixture_of_experts import (
    all_to_all_bytes_per_chip,
    expected_dropped_visits,
    expert_capacity,
)

D, F = 12, 7
# fp32 in another order: sums of a dozen products of numbers near 1, for at most seven experts
SAME = {"rtol": 1e-5, "atol": 1e-5}


def draw(*shape: int, seed: int = 0, std: float = 1.0) -> torch.Tensor:
    return std * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def layer(E: int) -> list[torch.Tensor]:
    """w_gate, w_up, w_down, of such sizes that what comes out is near 1, as what goes in."""
    wide, narrow = D**-0.5, F**-0.5
    return [
        draw(E, F, D, seed=1, std=wide),
        draw(E, F, D, seed=2, std=wide),
        draw(E, D, F, seed=3, std=narrow),
    ]


@st.composite
def routings(draw_one: st.DrawFn) -> tuple[torch.Tensor, int]:
    """Any k distinct experts for each token: some crowded, others empty."""
    E = draw_one(st.integers(1, 7))
    k, n = draw_one(st.integers(1, E)), draw_one(st.integers(1, 12))
    chosen = [draw_one(st.permutations(range(E)))[:k] for _ in range(n)]
    return torch.tensor(chosen), E


def by_hand(experts: torch.Tensor, E: int, capacity: int, first: bool) -> list[list[int]]:
    """Bins as lists."""
    n, k = experts.shape
    filled: list[list[int]] = [[] for _ in range(E)]
    place = [[bins.DROPPED] * k for _ in range(n)]
    visits = [(t, c) for t in range(n) for c in range(k)]
    for t, c in sorted(visits, key=lambda v: (v[1], v[0])) if first else visits:
        e = int(experts[t, c])
        if len(filled[e]) < capacity:
            place[t][c] = len(filled[e])
            filled[e].append(t)
    return place


@draws(60)
@given(routings(), st.integers(0, 6), st.booleans())
def test_seats_are_taken_as_by_hand_and_the_events_say_which(routing, capacity, first):
    experts, E = routing
    given_to = {"first_choices_first": first}
    wanted = by_hand(experts, E, capacity, first)
    assert bins.seats(experts, E, capacity, **given_to).tolist() == wanted
    with expert_visits() as log:
        bins.run_in_bins(
            draw(len(experts), D), experts, torch.ones(experts.shape), *layer(E), capacity,
            **given_to,
        )  # fmt: skip
    assert len(log) == experts.numel()
    for event in log:
        place = wanted[event["token"]][event["choice"]]
        assert event["place"] == (None if place == bins.DROPPED else place)
        assert event["expert"] == experts[event["token"], event["choice"]]
    choices = [event["choice"] for event in log]
    assert not first or choices == sorted(choices)
    assert bins.seats.__name__ == "seats"  # the kernel's own step again


@draws(30)
@given(routings())
def test_with_room_for_all_bins_equal_the_sorted_loop_and_so_does_one_kernel(routing):
    experts, E = routing
    x, weights = draw(len(experts), D), draw(*experts.shape, seed=9)
    expected = run_experts(x, experts, weights, *layer(E))
    in_bins = bins.run_in_bins(x, experts, weights, *layer(E), capacity=len(experts))
    torch.testing.assert_close(in_bins, expected, **SAME)
    torch.testing.assert_close(run_grouped(x, experts, weights, *layer(E)), expected, **SAME)


@draws(30)
@given(routings(), st.integers(0, 4), st.booleans())
def test_a_dropped_visit_is_one_of_weight_zero(routing, capacity, first):
    experts, E = routing
    x, weights = draw(len(experts), D), draw(*experts.shape, seed=9)
    kept = bins.seats(experts, E, capacity, first_choices_first=first) != bins.DROPPED
    expected = run_experts(x, experts, weights * kept, *layer(E))
    found = bins.run_in_bins(x, experts, weights, *layer(E), capacity, first_choices_first=first)
    torch.testing.assert_close(found, expected, **SAME)


def test_first_choices_go_before_second_ones_only_if_asked():
    experts = torch.tensor([[0, 1], [1, 0], [1, 2]])
    token_by_token = bins.seats(experts, 3, 1)
    best_first = bins.seats(experts, 3, 1, first_choices_first=True)
    assert token_by_token.tolist() == [[0, 0], [-1, -1], [-1, 0]]
    assert best_first.tolist() == [[0, -1], [0, -1], [-1, 0]]


def test_bins_compute_empty_places_too():
    x, experts, weights = draw(10, D), torch.zeros(10, 1, dtype=torch.long), torch.ones(10, 1)
    with Meter() as m:
        bins.run_in_bins(x, experts, weights, *layer(4), capacity=5)
    assert m.matmul_flops == 4 * 5 * 6 * D * F


def test_an_even_router_drops_as_many_visits_as_theory_expects():
    """4,000 batches of 24 tokens: the mean of drops within four standard errors."""
    E, k, n, rounds = 6, 2, 24, 4000
    capacity = expert_capacity(n, E, k, 1.25)
    experts = draw(rounds * n, E).topk(k).indices.view(rounds, n, k)
    dropped = [int((bins.seats(batch, E, capacity) == bins.DROPPED).sum()) for batch in experts]
    seen = torch.tensor(dropped, dtype=torch.float64)
    error = seen.std() / rounds**0.5
    assert abs(seen.mean() - expected_dropped_visits(n, E, k, capacity)) < 4 * error
    assert seen.mean() > 20 * error  # there is something to be seen


def test_one_kernel_reads_and_computes_what_the_loop_does_in_one_call():
    E, n, k = 9, 5, 2
    x, weights = draw(n, D), torch.ones(n, k)
    experts = torch.tensor([[0, 4], [4, 7], [0, 7], [4, 0], [8, 4]])
    with Meter() as loop:
        run_experts(x, experts, weights, *layer(E))
    with Meter() as one:
        run_grouped(x, experts, weights, *layer(E))
    assert one.matmul_flops == loop.matmul_flops == n * k * 6 * D * F
    kernel = next(c for name, c in one.by_op.items() if "grouped" in name)
    assert kernel.calls == 1
    products = sum(c.calls for name, c in loop.by_op.items() if name in ("aten.mm", "aten.addmm"))
    assert products == 4 * 3
    assert kernel.bytes_read == 4 * (4 * 3 * D * F + n * k * (D + F))
    assert kernel.bytes_written == 4 * n * k * (D + F)


def test_experts_that_nobody_visits_are_never_read():
    x, weights = draw(3, D), torch.ones(3, 2)
    experts = torch.tensor([[1, 3], [3, 1], [1, 3]])
    matrices = layer(5)
    expected = run_grouped(x, experts, weights, *matrices)
    for w in matrices:
        w[[0, 2, 4]] = torch.nan
    assert torch.equal(run_grouped(x, experts, weights, *matrices), expected)


def test_softmax_after_the_choice_is_softmax_before_it_with_normalized_weights():
    logits = draw(40, 9, std=3)
    experts, weights = route(logits, 3)
    best = logits.topk(3, dim=-1)
    assert torch.equal(best.indices, experts)
    torch.testing.assert_close(best.values.softmax(-1), weights, **SAME)
    torch.testing.assert_close(
        route(logits, 3, normalize=False)[1],
        logits.softmax(-1).gather(-1, experts),
        **SAME,
    )


@pytest.mark.parametrize(
    ("experts", "capacity", "says"),
    [
        ([[0, 3]], 2, "there are 3"),
        ([[-1, 0]], 2, "from 0"),
        ([0, 1], 2, r"\[tokens, k\]"),
        ([[0, 1]], -1, "bin is a whole number of at least 0"),
    ],
)
def test_seats_refuse_what_is_no_routing(experts, capacity, says):
    with pytest.raises(ValueError, match=says):
        bins.seats(torch.tensor(experts), 3, capacity)


def test_one_kernel_refuses_what_it_would_misread():
    x, experts, weights = draw(2, D), torch.tensor([[0], [1]]), torch.ones(2, 1)
    gate, up, down = layer(2)
    with pytest.raises(ValueError, match=r"x is .*float64"):
        run_grouped(x.double(), experts, weights, gate, up, down)
    with pytest.raises(ValueError, match=r"w_down is .* on cpu, not contiguous"):
        run_grouped(x, experts, weights, gate, up, down.mT.contiguous().mT)
    with pytest.raises(ValueError, match="there are 2, counted from 0"):
        run_grouped(x, experts + 1, weights, gate, up, down)
    with pytest.raises(ValueError, match="no gradients"):
        run_grouped(x.requires_grad_(), experts, weights, gate, up, down)
    with pytest.raises(ValueError, match="run_experts needs"):
        run_grouped(draw(3, D), experts, weights, gate, up, down)


# Experts on several ranks.


@draws(15)
@given(st.integers(1, 4), st.data())
def test_experts_dealt_out_to_ranks_answer_as_on_one(n_ranks, data):
    held = data.draw(st.integers(1, 3))
    E = n_ranks * held
    k = data.draw(st.integers(1, E))
    lengths = data.draw(st.lists(st.integers(0, 4), min_size=n_ranks, max_size=n_ranks))
    x = draw(sum(lengths), D)
    logits, weights = draw(len(x), E, seed=5), draw(len(x), k, seed=6)
    experts = logits.topk(k).indices
    matrices = layer(E)

    def rank(comm: Comm) -> torch.Tensor:
        mine = slice(comm.rank * held, (comm.rank + 1) * held)
        start = sum(lengths[: comm.rank])
        own = slice(start, start + lengths[comm.rank])
        return expert_parallel(
            comm, x[own], experts[own], weights[own], *(w[mine] for w in matrices)
        )

    found = torch.cat(simulate(n_ranks, rank))
    expected = run_experts(x, experts, weights, *matrices) if len(x) else x
    torch.testing.assert_close(found, expected, **SAME)


def test_what_expert_parallel_ranks_send_is_what_theory_says():
    """Every pair of 8 experts once, for each token: the mean over routes is exact."""
    E, k, n = 8, 2, 4
    experts = torch.combinations(torch.arange(E), k)  # [28, 2]
    x = draw(len(experts) * n, D)
    matrices = layer(E)

    def rank(comm: Comm) -> tuple[int, int]:
        tracer = Tracer(comm)
        mine = slice(2 * comm.rank, 2 * comm.rank + 2)
        own = x[28 * comm.rank : 28 * (comm.rank + 1)]
        expert_parallel(tracer, own, experts, torch.ones(28, k), *(w[mine] for w in matrices))
        there, _, back = tracer.log.select("collective")
        return there["sent_bytes"], back["sent_bytes"]

    sent = simulate(n, rank)
    expected = all_to_all_bytes_per_chip(len(x), D, k, n, 4)
    assert sum(there for there, _ in sent) / n == expected
    assert sum(back for _, back in sent) / n == expected


def test_a_token_for_an_expert_that_no_rank_has_is_refused():
    def rank(comm: Comm) -> torch.Tensor:
        return expert_parallel(comm, draw(1, D), torch.tensor([[4]]), torch.ones(1, 1), *layer(2))

    with pytest.raises(RankError, match="experts 0 to 3"):
        simulate(2, rank)
