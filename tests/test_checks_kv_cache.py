"""What the checks of chapter 3 take for right is what the course's formulas and its meter say."""

from __future__ import annotations

import pytest
import torch

from twophase.checks import registry
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
