"""What the checks of chapter 3 take for right is what the course's formulas and its meter say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from exercise_tools import refused_by_a_fixed_case

from twophase.checks import registry
from twophase.checks.judge import judge
from twophase.checks.kv_cache import cache, ragged, rope_cached
from twophase.kernels.kv_cache import KVCache
from twophase.kernels.span import Span
from twophase.measure.meter import Meter

DTYPES = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}
METERED = 10_000  # positions: more would take the meter seconds, and the formula has no threshold


def _measured(B: int, S: int, S_max: int, N: int, K: int, H: int, bytes_per_value: int) -> int:
    """Counted while one layer's step runs."""
    dtype = DTYPES[bytes_per_value]

    def numbers(T: int, heads: int) -> torch.Tensor:
        return torch.zeros(B, T, heads, H, dtype=dtype)

    cache, span = KVCache(B, S_max, K, H, dtype=dtype), Span.of(B, T=1, start=S)
    q, k, v = numbers(1, N), numbers(1, K), numbers(1, K)
    with Meter() as meter:
        cache.write(k, v, span)
        with meter.fused("attention"):
            cache.attend(q, span)
    return meter.bytes


@pytest.mark.parametrize("seed", [0, 7])
def test_the_bytes_a_step_should_move_are_those_the_meter_counts(seed: int) -> None:
    exercise = registry.load("kv_cache-step_bytes")
    metered = [case.args for case in exercise.make_cases(seed) if case.args[1] < METERED]
    assert len(metered) > 10
    for sizes in metered:
        assert exercise.reference(*sizes) == _measured(*sizes), sizes


@pytest.mark.parametrize("kept", ["the widest", "the narrowest"])
def test_frequencies_kept_by_theta_alone_are_refused(kept: str) -> None:
    """Cut to the width, or computed anew where they are too few."""
    known: dict[float, int] = {}  # the width that the frequencies of a theta are those of

    def turn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, n_cached: int, theta: float) -> Any:
        H = q.shape[-1]
        other = known.setdefault(theta, H)
        if other < H:
            other = H
            known[theta] = H if kept == "the widest" else known[theta]
        pair = torch.arange(H // 2, dtype=torch.float64)
        positions = rope_cached._positions(q, n_cached).double()
        angles = positions[:, None] * theta ** (-2 * pair / other)
        return rope_cached._turn(q, angles), rope_cached._turn(k, angles), v

    refused_by_a_fixed_case("kv_cache-rope_cached", {"turn": turn})


class _AdoptsTheFirstBlock(cache.Right):
    """A block that fills the cache becomes its buffer, and what comes after a reset goes there."""

    def append(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.length == 0 and k.shape[1] == self.S_max:
            self.keys, self.values = k, v
        return super().append(k, v)


class _AdoptsAFullBlock(ragged.Right):
    """The like for many sequences: shorter ones grow in the caller's tensor."""

    def append(self, k: torch.Tensor, v: torch.Tensor, n_new: list[int]) -> Any:
        if not any(self.lengths) and k.shape[1] == self.S_max:
            self.keys, self.values = k, v
        return super().append(k, v, n_new)


@pytest.mark.parametrize(
    ("slug", "made"),
    [
        ("cache", {"KVCache": _AdoptsTheFirstBlock}),
        ("ragged", {"RaggedKVCache": _AdoptsAFullBlock}),
    ],
)
def test_a_cache_that_writes_into_what_it_was_given_earlier_is_refused(
    slug: str, made: dict[str, Any]
) -> None:
    refused_by_a_fixed_case(f"kv_cache-{slug}", made)
    assert (
        "went on to change what it had been given"
        in judge(registry.load(f"kv_cache-{slug}"), made).message
    )
