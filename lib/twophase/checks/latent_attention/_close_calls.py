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
    byte; rooms for keys and values that are not as wide as each other."""
    return [*_nearly_as_quick(), *_large_room(), *_unlike_widths()]


def _unlike_widths() -> list[tuple[str, Given]]:
    """Keys wider than values, and values wider than keys, in room to the last byte and a byte
    less: twice the one width is more than both, or less."""
    chip, work = {"flops_per_s": 1e9, "bytes_per_s": 1e9}, [1, 50, 400]
    made = []
    for nope, v in ((8, 2), (2, 8)):
        layer: Layer = {"N": 2, "R": 8, "nope_dim": nope, "rope_dim": 2, "v_dim": v}
        room = scratch_bytes(layer, work)
        for short, form in ((0, EXPANDED), (1, ABSORBED)):
            given: Given = (layer, [work], {**chip, "scratch_bytes": float(room - short)})
            assert [chosen for chosen, _ in best(*given)] == [form]
            name = f"nope_dim={nope}, v_dim={v}, room to the last byte"
            made.append((f"{name}, a byte less" if short else name, given))
    return made


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
    return [
        ("a large room to the last byte", full),
        ("a byte too little of the large room", less),
        _long_prompt(),
    ]


def _long_prompt() -> tuple[str, Given]:
    """More than four thousand million bytes of keys and values, and a byte too little room."""
    layer = {"N": 128, "R": 512, "nope_dim": 128, "rope_dim": 64, "v_dim": 128}
    work = [1, 65_536, 65_536]
    chip = {"flops_per_s": 1e15, "bytes_per_s": 3e12}
    room = scratch_bytes(layer, work)
    given: Given = (layer, [work], {**chip, "scratch_bytes": float(room - 1)})
    assert room >= 2**32
    assert [form for form, _ in best(layer, [work], {**chip, "scratch_bytes": room})] == [EXPANDED]
    assert [form for form, _ in best(*given)] == [ABSORBED]
    return "a prompt of 65,536 tokens, a byte too little room", given
