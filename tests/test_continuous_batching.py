"""Ragged rows say what padded batches say, and a budget of tokens keeps a pass under its limit."""

import math
import random
from typing import Any

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.kernels.attention import causal_attention
from twophase.kernels.continuous_batching import padded_attention, ragged_attention
from twophase.theory import catalog
from twophase.theory.continuous_batching import (
    burstiness,
    largest_chunk,
    least_steps,
    padding_share,
    pass_s,
    static_steps,
)
from twophase.theory.deployment import Deployment
from twophase.theory.workload import Workload

LLAMA = Deployment(catalog.model("Llama-3-8B"), catalog.hardware("h100"), Workload())
lengths = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 9)), min_size=1, max_size=5)


def rows(n_new: list[int], ends: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries of 6 heads on keys and values of 2, as wide as no other size here."""
    generator = torch.Generator().manual_seed(sum(ends))
    return tuple(  # type: ignore[return-value]
        torch.randn(n, heads, 5, generator=generator, dtype=torch.float64)
        for n, heads in ((sum(n_new), 6), (sum(ends), 2), (sum(ends), 2))
    )


@draws(40)
@given(lengths)
def test_a_ragged_row_says_what_each_sequence_says_alone_and_a_padded_batch_too(
    parts: list[tuple[int, int]],
) -> None:
    n_new = [n for n, _ in parts]
    ends = [n + before for n, before in parts]
    q, k, v = rows(n_new, ends)
    alone = torch.cat(
        [
            causal_attention(a[None], b[None], c[None])[0]
            for a, b, c in zip(q.split(n_new), k.split(ends), v.split(ends), strict=True)
        ]
    )
    torch.testing.assert_close(ragged_attention(q, k, v, n_new, ends), alone, rtol=1e-12, atol=0)
    padded = padded_attention(q, k, v, n_new, ends)
    torch.testing.assert_close(padded, alone, rtol=1e-9, atol=1e-12)


def test_without_ends_all_keys_are_new() -> None:
    q, k, v = rows([3, 1], [3, 1])
    for attention in (ragged_attention, padded_attention):
        assert torch.equal(attention(q, k, v, [3, 1]), attention(q, k, v, [3, 1], [3, 1]))


@pytest.mark.parametrize(
    ("n_new", "ends"), [([], []), ([2], [1]), ([0, 2], [1, 2]), ([2], [2, 1]), ([1], [2])]
)
def test_lengths_that_cannot_be_are_refused(n_new: list[int], ends: list[int]) -> None:
    q, k, v = rows([2], [2])
    for attention in (ragged_attention, padded_attention):
        with pytest.raises(ValueError, match=r"each sequence|are announced"):
            attention(q, k, v, n_new, ends)


@pytest.mark.parametrize("limit_s", [0.006, 0.02, 0.1])
@pytest.mark.parametrize("start", [0, 1, 1000])
def test_one_token_more_than_the_largest_chunk_takes_too_long(limit_s: float, start: int) -> None:
    others = [500] * 32
    n = largest_chunk(LLAMA, others, limit_s, start)
    ones = [1] * 32
    assert n > 0
    assert pass_s(LLAMA, [*others, start], [*ones, n]) <= limit_s
    assert pass_s(LLAMA, [*others, start], [*ones, n + 1]) > limit_s


def test_where_the_step_alone_takes_too_long_there_is_room_for_no_chunk() -> None:
    assert largest_chunk(LLAMA, [500] * 32, 1e-3) == 0
    assert largest_chunk(LLAMA, [], 0.02) > largest_chunk(LLAMA, [4000] * 40, 0.02) > 0


@pytest.mark.parametrize("limit_s", [math.nan, math.inf, 0.0, -1.0])
def test_a_limit_that_is_no_time_is_refused(limit_s: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        largest_chunk(LLAMA, [500] * 32, limit_s)


@pytest.mark.parametrize("wrong", [1.5, math.nan, math.inf, 0])
def test_lengths_and_seats_that_are_no_whole_numbers_are_refused(wrong: Any) -> None:
    for lengths in ([wrong, 2], [2, wrong]):
        with pytest.raises(ValueError, match="whole numbers"):
            padding_share(lengths)
        with pytest.raises(ValueError, match="whole numbers"):
            static_steps(lengths, 2)
    with pytest.raises(ValueError, match="whole numbers"):
        least_steps([2, 3], wrong)


def test_padding_is_what_is_missing_to_the_longest() -> None:
    assert padding_share([5, 5, 5]) == 0
    assert padding_share([1, 4]) == 3 / 8
    with pytest.raises(ValueError, match="at least one"):
        padding_share([])


def test_burstiness_is_that_of_clockwork_poisson_and_bursts() -> None:
    """20,000 exponential gaps: within five standard errors, 0.1."""
    rng = random.Random(0)
    assert burstiness([0.5] * 7) == 0
    assert burstiness([rng.expovariate(3.0) for _ in range(20_000)]) == pytest.approx(1, abs=0.1)
    assert burstiness([0.0, 0.0, 0.0, 4.0]) == 3
    for wrong in ([], [0.0], [-1.0, 2.0], [2.0, math.inf], [2.0, math.nan]):
        with pytest.raises(ValueError, match="gaps are at least 0"):
            burstiness(wrong)
