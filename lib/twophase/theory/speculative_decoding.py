"""What a draft is worth: tokens per call of the target, and the speed-up.

A draft proposes gamma tokens, the target reads them all in one call and keeps the first few.
`alpha` is the probability that it keeps one, given that it kept those before. Source: Leviathan et
al. 2023 (arXiv 2211.17192), eq. 1 and theorem 3.8; both assume that alpha is the same at every
token.
"""

from twophase.theory._domain import Number, formula
from twophase.theory._ops import where


@formula(zero_ok=("alpha", "gamma"), fraction=("alpha",))
def expected_tokens(alpha: Number, gamma: Number) -> Number:
    """Tokens that one call of the target yields on average: 1 + alpha + ... + alpha^gamma.

    One token is the target's own, so that a call yields at least one; with alpha = 1 all gamma
    drafted ones join it.
    """
    missed = where(alpha < 1, 1 - alpha, 1)
    return where(alpha < 1, (1 - alpha ** (gamma + 1)) / missed, gamma + 1)


@formula(zero_ok=("alpha", "gamma", "cost_ratio"), fraction=("alpha",))
def speedup(alpha: Number, gamma: Number, cost_ratio: Number) -> Number:
    """Tokens per second against the target alone. `cost_ratio`: time of a draft's step over one of
    the target's.

    Assumes that the target reads gamma + 1 tokens in the time of one, as it does while weights
    bound it.
    """
    return expected_tokens(alpha, gamma) / (gamma * cost_ratio + 1)
