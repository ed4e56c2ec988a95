"""Cases of mixture_of_experts-choose just beyond a limit: whoever takes steps of nearly the same
length for equals, or some number of seconds for an infinity, chooses other copies there."""

from __future__ import annotations

from twophase.checks.mixture_of_experts._copies import (
    NEAR,
    SMALL,
    V5E,
    WORKED,
    Args,
    all_to_all_s,
    best,
    exact_room,
    read_s,
    reduce_s,
)

FINE = 2e-8  # a hundred-millionth or two: float64 tells them apart, float32 does not


def close_steps() -> dict[str, Args]:
    """Two copies quicker than one by a little, and one copy quicker than two; a slow chip."""
    return {
        "two copies quicker than one by 2·10⁻⁸": _two_of_four(1 - FINE, quicker=2),
        "one copy quicker than two by 2·10⁻⁸": _two_of_four(1 + FINE, quicker=1),
        "a byte a second, four copies lack a byte": _slow(),
    }


def _two_of_four(times: float, quicker: int) -> Args:
    """Links of a rate at which a step with two copies takes so many times that with one."""
    unit = {**NEAR, "link_bytes_per_s": 1.0}
    one, two = (read_s(SMALL, NEAR, 4, 4, q) for q in (1, 2))
    first, second = (
        reduce_s(SMALL, unit, 4, 4, q) + all_to_all_s(SMALL, unit, 4, 4) for q in (1, 2)
    )
    # so that two + second / rate = times · (one + first / rate)
    rate = (first * times - second) / (two - one * times)
    args: Args = (SMALL, {**NEAR, "link_bytes_per_s": rate}, 4, 4)
    chosen = best(*args)
    assert chosen is not None
    assert chosen[0] == quicker
    return args


def _slow() -> Args:
    """A step of more than a thousand million seconds."""
    room = exact_room(WORKED, 32, 128, 4) - 1
    chip = {**V5E, "memory_bytes": room, "bytes_per_s": 1.0, "link_bytes_per_s": 1.0}
    args: Args = (WORKED, chip, 32, 128)
    chosen = best(*args)
    assert chosen is not None
    assert chosen[1] > 1e9
    return args
