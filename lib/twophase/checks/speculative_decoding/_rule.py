"""The rule by which a target keeps drafted tokens, on lists of probabilities, and the law of what
comes out."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from twophase.checks.law import law

Probs = list[float]
Choose = Callable[[Probs], int]
Verify = Callable[[list[Probs], list[Probs], list[int], Choose], list[int]]

LEAST = 1e-9  # a probability below is that of a path which rounding opened

# Target and draft of a token, the last, that the draft says once in 32,768 times and the target
# half as often: the chance of a token in a vocabulary of so many. It is kept by a half, and what is
# left over is as small. Every number is one of float32.
RARE: tuple[Probs, Probs] = (
    [0.5 + 3 * 2.0**-18, 0.5 - 2.0**-15 + 2.0**-18, 2.0**-16],
    [0.5, 0.5 - 2.0**-15, 2.0**-15],
)

# Two tokens, of which the target likes the first less than the draft does by one in 2^21, and the
# second more: a millionth of slack hides either. Every number is one of float32.
NEARLY_ALIKE: tuple[Probs, Probs] = [0.5 - 2.0**-22, 0.5 + 2.0**-22], [0.5, 0.5]

# Three tokens, of which the draft says the first once in 2^30 times and the target half as often;
# what is left over is as small: whoever bounds a divisor from below, or takes a small sum for none,
# is wrong here. The differences are exact in float32, too.
RAREST: tuple[Probs, Probs] = (
    [2.0**-31, 2.0**-30, 1 - 3 * 2.0**-31],
    [2.0**-30, 2.0**-31, 1 - 3 * 2.0**-31],
)


def normalized(weights: Probs) -> Probs:
    total = sum(weights)
    return [w / total for w in weights]


def left_over(target: Probs, draft: Probs) -> Probs:
    """What the target has and the draft had not."""
    return [max(0.0, t - d) for t, d in zip(target, draft, strict=True)]


def residual(target: Probs, draft: Probs) -> Probs:
    return normalized(left_over(target, draft))


def happens(probability: float, choose: Choose) -> bool:
    return choose([1 - probability, probability]) == 1


def written(tokens: Sequence[int]) -> str:
    return " ".join(map(str, tokens))


def said_law(
    verify: Verify, target_probs: list[Probs], draft_probs: list[Probs], drafted: list[int]
) -> dict[str, float]:
    """The probability of each list of tokens that `verify` says, written with blanks between."""
    found = law(lambda choose: written(verify(target_probs, draft_probs, drafted, choose)))
    return {str(said): p for said, p in found.items() if p > LEAST}


def wide(V: int) -> tuple[Probs, Probs]:
    """Target and draft over V tokens, the first of which the draft likes too much, and the last
    ones too little: all that is left over stands at the end."""
    target, draft = [0.0] * V, [0.0] * V
    target[0], target[-2], target[-1] = 0.25, 0.25, 0.5
    draft[0], draft[1], draft[-2], draft[-1] = 0.5, 0.125, 0.125, 0.25
    return target, draft


def drawn(rng: random.Random, V: int, zeros: int = 0) -> Probs:
    """A law over V tokens in 64ths, so that sums and differences of two are exact; `zeros` of them
    have none."""
    parts = [0] * V
    open_ = rng.sample(range(V), V - zeros)
    for token in open_:
        parts[token] = 1
    for _ in range(64 - len(open_)):
        parts[rng.choice(open_)] += 1
    return [n / 64 for n in parts]


def drafted_from(rng: random.Random, draft: Probs) -> int:
    """A token that the draft may draw."""
    return rng.choice([i for i, p in enumerate(draft) if p > 0])
