"""Cases of latent_attention-choose just beyond a limit: whoever allows for a millionth, or takes
times of nearly the same length for equals, chooses the other form there."""

from __future__ import annotations

from twophase.checks.latent_attention._form_times import (
    ABSORBED,
    EXPANDED,
    Chip,
    Layer,
    Pass,
    best,
    flops,
    scratch_bytes,
)

Given = tuple[Layer, list[Pass], Chip]


def close_calls() -> list[tuple[str, Given]]:
    """Either form quicker by less than a millionth; a large room that is full, and one that lacks a
    byte."""
    return [*_nearly_as_quick(), *_large_room()]


def _nearly_as_quick() -> list[tuple[str, Given]]:
    """Sizes at which the forms differ by two FLOPs of some 12 million: less than a millionth, and
    whole numbers that float32 holds, as it does their quotients by a power of two."""
    chip = {"flops_per_s": 2.0**20, "bytes_per_s": 2.0**40, "scratch_bytes": 1e9}
    sizes: list[tuple[str, Layer, Pass]] = [
        (
            EXPANDED,
            {"N": 1, "R": 16, "nope_dim": 15, "rope_dim": 2, "v_dim": 16},
            [1, 283, 659],
        ),
        (
            ABSORBED,
            {"N": 1, "R": 23, "nope_dim": 21, "rope_dim": 2, "v_dim": 22},
            [1, 209, 571],
        ),
    ]
    made = []
    for form, layer, work in sizes:
        fewest, more = sorted(flops(layer, work).values())
        assert more - fewest == 2
        assert 4e6 < more < 2**24
        given: Given = (layer, [work], chip)
        assert [chosen for chosen, _ in best(*given)] == [form]
        made.append((f"{form}, quicker by 2 FLOPs of {more:,}", given))
    return made


def _large_room() -> list[tuple[str, Given]]:
    """More bytes than float32 tells apart, on a chip so slow that no number of seconds is too large
    for a pass."""
    layer, work = {"N": 2, "R": 8, "nope_dim": 4, "rope_dim": 2, "v_dim": 4}, [100_000, 50, 50]
    slow, room = {"flops_per_s": 1.0, "bytes_per_s": 1e3}, float(scratch_bytes(layer, work))
    full: Given = (layer, [work], {**slow, "scratch_bytes": room})
    less: Given = (layer, [work], {**slow, "scratch_bytes": room - 1})
    assert room > 1e8
    ((form, _),), ((other, seconds),) = best(*full), best(*less)
    assert (form, other) == (EXPANDED, ABSORBED)
    assert seconds > 1e9
    return [("a large room to the last byte", full), ("a byte too little of the large room", less)]
