"""Chapter 11: what the theory says of experts, against enumeration, exact identities and published
numbers."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import pytest
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.theory import mixture_of_experts as theory
from twophase.theory.arithmetic_intensity import critical_batch
from twophase.theory.catalog import hardware, model
from twophase.theory.deployment import Deployment
from twophase.theory.workload import Workload


def every_routing(E: int, k: int, B: int) -> list[list[tuple[int, ...]]]:
    """All ways in which B tokens can pick k of E experts, each as likely as the next."""
    return [list(way) for way in product(combinations(range(E), k), repeat=B)]


def mean(values: list[int]) -> Fraction:
    return Fraction(sum(values), len(values))


# How many experts a batch touches.


@pytest.mark.parametrize(("E", "k", "B"), [(5, 2, 3), (4, 1, 4), (3, 3, 2), (6, 4, 2)])
def test_touched_experts_and_visits_to_them_by_enumeration(E, k, B):
    touched = mean([len(set().union(*way)) for way in every_routing(E, k, B)])
    assert theory.expected_experts(B, E, k) == pytest.approx(float(touched))
    assert theory.expected_experts_by_share(B, [k / E] * E) == pytest.approx(float(touched))
    assert theory.visits_per_touched_expert(B, E, k) == pytest.approx(float(B * k / touched))


def test_an_uneven_router_by_enumeration():
    """Three experts, two per token; the pair 0 and 1 in half of the cases."""
    pairs = {(0, 1): Fraction(1, 2), (0, 2): Fraction(1, 3), (1, 2): Fraction(1, 6)}
    shares = [float(sum(p for pair, p in pairs.items() if e in pair)) for e in range(3)]
    touched = Fraction(0)
    for ways in product(pairs, repeat=2):
        touched += pairs[ways[0]] * pairs[ways[1]] * len(set().union(*ways))
    assert theory.expected_experts_by_share(2, shares) == pytest.approx(float(touched))


@draws(50)
@given(B=st.integers(0, 200), weights=st.lists(st.integers(0, 20), min_size=2, max_size=12))
def test_no_uneven_router_touches_more_than_an_even_one(B, weights):
    """1 - (1 - q)^B bends down in q, so that spreading the shares can only raise the sum."""
    k = 1
    total = sum(weights) or 1
    shares = [w / total for w in weights]
    even = theory.expected_experts(B, len(shares), k) if sum(weights) else 0
    assert theory.expected_experts_by_share(B, shares) <= even + 1e-9


@draws(50)
@given(E=st.integers(1, 300), k=st.integers(1, 300), B=st.integers(1, 10**6))
def test_visits_per_touched_expert_lie_between_one_and_the_whole_batch(E, k, B):
    k = min(k, E)
    found = theory.visits_per_touched_expert(B, E, k)
    even = B * k / E
    assert max(1, even) - 1e-9 <= found <= min(B, even + 1) * (1 + 1e-9)


@pytest.mark.parametrize("shares", [[], [0.5, -0.1], [1.2], [float("nan")]])
def test_shares_that_are_no_fractions_are_refused(shares):
    with pytest.raises(ValueError, match="from 0 to 1"):
        theory.expected_experts_by_share(3, shares)


# What finds no room.


@pytest.mark.parametrize(("E", "k", "n"), [(4, 2, 3), (3, 1, 5), (5, 3, 2), (2, 2, 3)])
def test_dropped_visits_by_enumeration_at_every_capacity(E, k, n):
    ways = every_routing(E, k, n)
    for capacity in range(n + 2):
        dropped = mean(
            [
                sum(max(sum(e in chosen for chosen in way) - capacity, 0) for e in range(E))
                for way in ways
            ]
        )
        found = theory.expected_dropped_visits(n, E, k, capacity)
        assert found == pytest.approx(float(dropped), abs=1e-12)


def test_no_capacity_drops_every_visit_and_room_for_all_none():
    assert theory.expected_dropped_visits(5000, 16, 2, 0) == pytest.approx(10_000)
    assert theory.expected_dropped_visits(5000, 16, 2, 5000) == 0
    assert theory.expected_dropped_visits(0, 16, 2, 0) == 0


def test_capacity_is_the_even_share_times_the_factor_rounded_up():
    assert theory.expert_capacity(256, 8, 1, 1) == 32  # Switch Transformer, figure 3, in large
    assert theory.expert_capacity(256, 8, 1, 1.25) == 40
    assert theory.expert_capacity(100, 16, 2, 1) == 13
    assert theory.expert_capacity(1, 16, 2) == 1
    assert theory.expert_capacity(10, 10, 1, 1.1) == 2
    assert theory.expert_capacity(100, 10, 1, 1.1) == 11  # not 12: 1.1 is eleven tenths


@pytest.mark.parametrize("wrong", [(5, 4, 5, 1), (-1, 4, 2, 1), (5, 4, 2, -1), (5, 4, 0, 1)])
def test_dropped_visits_of_nonsense_are_refused(wrong):
    with pytest.raises(ValueError, match="dropped visits need whole numbers"):
        theory.expected_dropped_visits(*wrong)


# Many chips.


@pytest.mark.parametrize(("E", "k", "n_chips"), [(6, 2, 3), (8, 3, 4), (4, 4, 2), (8, 2, 8)])
def test_the_chips_of_a_tokens_experts_by_enumeration(E, k, n_chips):
    per_chip = E // n_chips
    chips = mean([len({e // per_chip for e in chosen}) for chosen in combinations(range(E), k)])
    assert theory.expected_chips(E, k, n_chips) == chips


@pytest.mark.parametrize("wrong", [(8, 2, 3), (8, 9, 2), (8, 2, 0), (4, 2, 8)])
def test_experts_that_do_not_divide_over_chips_are_refused(wrong):
    with pytest.raises(ValueError, match="do not divide evenly"):
        theory.expected_chips(*wrong)


def test_what_travels_by_enumeration_of_routes():
    """4 chips of 2 experts, 8 tokens lying 2 on each chip, every visit by itself: the mean over a
    token's routes of what leaves its chip."""
    E, k, n, B, D = 8, 2, 4, 8, 10
    leaving = mean([sum(e // 2 != 0 for e in chosen) for chosen in combinations(range(E), k)])
    assert theory.all_to_all_bytes_per_chip(B, D, k, n, 2) == pytest.approx(
        float(B // n * leaving * D * 2)
    )
    assert theory.all_to_all_bytes_per_chip(B, D, k, 1) == 0


def test_half_a_chip_sends_nothing_and_no_chip_holds_more_than_one_copy():
    with pytest.raises(ValueError, match="n_chips must be a whole number"):
        theory.all_to_all_bytes_per_chip(8, 10, 2, 0.5)
    with pytest.raises(ValueError, match="dense_copies must be at most n_chips"):
        theory.expert_parallel_bytes_per_chip(10, 80, 4, 8)
    with pytest.raises(ValueError, match="n_chips must be 1 or more"):
        theory.expert_parallel_bytes_per_chip(10, 80, 0.5)


# The worked problems.

MOE = model("worked-moe")
DENSE = model("worked-18b")
CHIP = hardware("worked-v5e")


def test_total_and_active_parameters_of_the_worked_mixture():
    """212 and 31.3 billion in the notes that pose the problem."""
    assert MOE.n_params() == pytest.approx(212e9, rel=2e-3)
    assert MOE.n_active_params() == pytest.approx(31.3e9, rel=2e-3)
    dense = MOE.n_params() - MOE.n_moe_layers * MOE.moe.E * MOE.n_expert_params()
    assert MOE.n_params() - dense == 16 * 64 * 3 * 4096 * 16384
    assert MOE.n_active_params() - dense == 2 * 64 * 3 * 4096 * 16384


def test_the_critical_batch_of_all_weights_is_the_share_of_active_ones_not_of_active_experts():
    """Where every expert is read, FLOPs go with active parameters and bytes with all of them. The
    planner's own search, which knows the experts that a batch touches, finds the same batch."""
    rates = CHIP.flops_per_s["bf16"], CHIP.hbm_bytes_per_s
    d = Deployment(MOE, CHIP, Workload(batch=1, context=1024))
    weights = MOE.n_matmul_params()
    stored = MOE.n_params()
    found = d.critical_batch(d.weights_alone)
    assert found == pytest.approx(critical_batch(*rates, 2, stored, weights), abs=1.5)
    assert found < 0.9 * critical_batch(*rates, 2, MOE.moe.E, MOE.moe.k)


def test_the_smallest_slices_that_hold_the_worked_mixture():
    """Weights alone, all memory in use: 14 chips in int8, so 4x4; 27 in bf16, so 4x8."""
    needed = {}
    for weights in ("int8", "bf16"):
        w = Workload(weights=weights, embeddings=weights, usable_fraction=1, context=1)
        needed[weights] = Deployment(MOE, CHIP, w).chips_needed(1, 1)
    assert 13 < needed["int8"] <= 16
    assert 16 < needed["bf16"] <= 32


def test_attention_copied_or_not_on_the_8x16_slice():
    """Experts over all 128 chips; attention and embedding divided by all, or copied 8 times."""
    experts = MOE.n_moe_layers * MOE.moe.E * MOE.n_expert_params()
    dense = MOE.n_params() - experts
    divided = theory.expert_parallel_bytes_per_chip(dense, experts, 128)
    copied = theory.expert_parallel_bytes_per_chip(dense, experts, 128, dense_copies=8)
    everywhere = theory.expert_parallel_bytes_per_chip(dense, experts, 128, dense_copies=128)
    assert divided == 2 * MOE.n_params() / 128
    assert copied - divided == 2 * 7 * dense / 128
    assert everywhere == 2 * (dense + experts / 128)
    assert 2 * divided > copied > divided
    assert everywhere > 3 * divided


def test_deepseek_v3_has_671_billion_parameters_of_which_37_are_active():
    """As its paper says (arXiv 2412.19437)."""
    v3 = model("deepseek-v3")
    assert v3.n_params() == pytest.approx(671e9, rel=2e-3)
    assert v3.n_active_params() == pytest.approx(37e9, rel=2e-2)
