"""Blocks of scores: the cases of arithmetic_intensity-online_softmax."""

from __future__ import annotations

import math
import random

import torch

from twophase.checks.arithmetic_intensity._data import NEG_INF, normal
from twophase.checks.edges import past
from twophase.checks.exercise import Case

Tensor = torch.Tensor
WIDE = past(1024, 2048)  # scores in the widest block
# exp of it lies halfway between two numbers of float16, at the place where they are farthest apart
BETWEEN_HALVES = math.log(0.5 * (1 + 2.0**-11))


def _blocks(
    rng: random.Random,
    T: int,
    widths: list[int],
    scale: float = 2.0,
    shifts: tuple[float, ...] = (),
) -> list[Tensor]:
    """Blocks of scores [T, width], shifted as given."""
    shifts = shifts or (0.0,) * len(widths)
    return [normal(rng, T, w, scale=scale) + shift for w, shift in zip(widths, shifts, strict=True)]


def _exact(*rows: list[float]) -> Tensor:
    """A block of scores that fp32 holds exactly."""
    return torch.tensor(rows)


def _largest_visible_is(largest: float, blocks: list[Tensor]) -> list[Tensor]:
    """The blocks, which promise that no row sees a larger score, and that some are masked."""
    scores = torch.cat(blocks, -1)
    assert bool((scores.amax(-1) == largest).all())
    assert bool((scores == NEG_INF).any())
    return blocks


def _masks(rng: random.Random) -> list[Case]:
    """Rows that see nothing at first, in the middle, in the end; masked places among visible ones,
    with scores from one end of the range to the other."""
    masked = _blocks(rng, 3, [3, 2, 4])
    masked[0][1] = NEG_INF  # this row sees nothing in the first block
    masked[1][0, 1] = NEG_INF
    masked[2][2] = NEG_INF  # and this one nothing in the last
    unseen = _blocks(rng, 2, [2, 1, 3])
    unseen[0][:] = NEG_INF
    unseen[1][0] = NEG_INF
    columns = _blocks(rng, 2, [4, 3, 4])
    for block in columns:
        block[:, 0], block[:, -1] = NEG_INF, NEG_INF  # the first place and the last
    return [
        Case("one row has nothing but −inf in the first block", (masked,)),
        Case("all rows begin with −inf", (unseen,)),
        Case("the first and the last place of every block are masked", (columns,)),
        Case("nothing but −inf", ([_exact([NEG_INF, NEG_INF]), _exact([NEG_INF])],)),
        *(
            Case(
                f"the largest visible score is {name}, others are masked",
                (
                    _largest_visible_is(
                        top,
                        [
                            _exact([top, NEG_INF, top - 1, NEG_INF], [NEG_INF] * 4),
                            _exact([NEG_INF, top - 2], [top, NEG_INF]),
                        ],
                    ),
                ),
            )
            for name, top in (("−150", -150.0), ("−998", -998.0), ("850", 850.0))
        ),
    ]


def _states() -> list[Case]:
    """The same block after states that differ in the maximum alone, or in the sum alone: whoever
    keeps results by the rest is wrong here. Three of each: of three calls two meet the same
    process, where there are two."""
    firsts = {
        "a score of 2": [2.0],
        "a score of 3": [3.0],
        "a score of 4": [4.0],
        "two scores of 2": [2.0] * 2,
        "three scores of 2": [2.0] * 3,
    }
    return [
        Case(f"{name}, then 1 and 0", ([_exact(first), _exact([1.0, 0.0])],))
        for name, first in firsts.items()
    ]


def cases(rng: random.Random) -> list[Case]:
    """One block; the same block after several states; maxima that rise and that fall, and equal
    ones; scores far from zero; masks; wide blocks and many."""
    return [
        Case("one block of two scores", (_blocks(rng, 1, [2]),)),
        *_states(),
        Case("two blocks, the second larger", (_blocks(rng, 2, [2, 3], shifts=(0.0, 3.0)),)),
        Case(
            "three blocks, the largest scores first",
            (_blocks(rng, 2, [3, 1, 2], shifts=(6.0, 0.0, 3.0)),),
        ),
        Case(
            "equal scores, in a block and in two",
            ([_exact([1.5, 1.5, 0.5], [2.0, 0.0, 0.0]), _exact([1.5, 0.5], [2.0, 2.0])],),
        ),
        Case("blocks of one score", (_blocks(rng, 3, [1, 1, 1]),)),
        Case("scores around 300", (_blocks(rng, 2, [2, 3, 2], shifts=(300.0, 290.0, 310.0)),)),
        Case("scores around −300", (_blocks(rng, 2, [2, 2], shifts=(-300.0, -310.0)),)),
        Case(
            "two rows 2,000 apart, then the other way round",
            ([_exact([1000.0, 999.0], [-1000.0, -999.0]), _exact([-1000.0], [1000.0])],),
        ),
        *_masks(rng),
        Case("263 rows", (_blocks(rng, 263, [2, 3]),), public=False),
        Case("many blocks", (_blocks(rng, 3, [4, 1, 7, 3, 5, 2], scale=5.0),), public=False),
        Case(
            "37 blocks, the maximum rises all the time",
            (_blocks(rng, 2, [2] * 37, shifts=tuple(0.5 * i for i in range(37))),),
            public=False,
        ),
        Case(
            "one score of 0, 255 of −0.69266",
            ([_exact([0.0, *[BETWEEN_HALVES] * 255])],),
            public=False,
        ),
        Case("one score of 0, 2,000 of −12", ([_exact([0.0, *[-12.0] * 2000])],), public=False),
        Case(
            "64 equal scores, then 20 blocks, each 2⁻¹² above the one before",
            ([torch.zeros(1, 64), *(torch.full((1, 1), i * 2.0**-12) for i in range(1, 21))],),
            public=False,
        ),
        Case(
            f"{WIDE} equal scores, then one that is 8 above them, then as many again",
            ([torch.full((2, WIDE), 3.0), torch.full((2, 1), 11.0), torch.full((2, WIDE), 3.0)],),
            public=False,
        ),
    ]
