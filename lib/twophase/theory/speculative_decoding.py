"""What a draft is worth: tokens per call of the target, and the speed-up.

A draft proposes gamma tokens, the target reads them all in one call and keeps the first few.
`alpha` is the probability that it keeps one, given that it kept those before. Source: Leviathan et
al. 2023 (arXiv 2211.17192), eq. 1 and theorem 3.8; both assume that alpha is the same at every
token.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul

from twophase.theory._domain import Number, formula
from twophase.theory._ops import where
from twophase.theory.latency_throughput import step_time_s


@formula(zero_ok=("alpha", "gamma"), fraction=("alpha",), whole=("gamma",))
def expected_tokens(alpha: Number, gamma: Number) -> Number:
    """Tokens that one call of the target yields on average: 1 + alpha + ... + alpha^gamma.

    One token is the target's own, so that a call yields at least one; with alpha = 1 all gamma
    drafted ones join it.
    """
    missed = where(alpha < 1, 1 - alpha, 1)
    return where(alpha < 1, (1 - alpha ** (gamma + 1)) / missed, gamma + 1)


def expected_tokens_by_place(acceptances: Sequence[float]) -> float:
    """The same where each place has an acceptance of its own: 1 + a1 + a1·a2 + ... .

    `acceptances[i]`: the probability that drafted token i + 1 is kept, given that those before it
    were. Measured ones differ from place to place, since a draft that was believed so far is in an
    easy stretch of text. ValueError for what is no probability.
    """
    if bad := [a for a in acceptances if not 0 <= a <= 1]:
        raise ValueError(f"an acceptance is a probability, from 0 to 1; got {bad[0]}.")
    chances: Iterable[float] = accumulate(acceptances, mul)  # that each place is reached and kept
    return 1 + sum(chances)


@formula(zero_ok=("alpha", "gamma", "cost_ratio"), fraction=("alpha",), whole=("gamma",))
def speedup(alpha: Number, gamma: Number, cost_ratio: Number, verify_ratio: Number = 1) -> Number:
    """Tokens per second against the target alone. `cost_ratio`: time of a draft's step over one of
    the target's; `verify_ratio`: time of the target's pass over gamma + 1 tokens over one of its
    steps (`verification_ratio`), 1 while weights bound it.
    """
    return expected_tokens(alpha, gamma) / (gamma * cost_ratio + verify_ratio)


@formula(zero_ok=("gamma", "cache_bytes_per_sequence"), least={"B": 1}, whole=("gamma",))
def verification_ratio(
    weight_bytes: Number,
    B: Number,
    cache_bytes_per_sequence: Number,
    token_flops: Number,
    gamma: Number,
    bytes_per_s: Number,
    flops_per_s: Number,
) -> Number:
    """Time of a pass over gamma + 1 tokens of each of B sequences, over that of a plain step.

    Both read the weights and every cache once and multiply for each token (`token_flops`), and the
    longer of the two counts. So it is 1 until B (gamma + 1) tokens keep the processor busy for as
    long as the reading takes, and grows towards gamma + 1 from there.
    """
    sizes = (weight_bytes, B, cache_bytes_per_sequence)
    plain = step_time_s(*sizes, B * token_flops, bytes_per_s, flops_per_s)
    return step_time_s(*sizes, B * (gamma + 1) * token_flops, bytes_per_s, flops_per_s) / plain


def best_draft_length(
    tokens_per_call: Sequence[float], draft_s: float, verify_s: Sequence[float]
) -> int:
    """The number of drafted tokens that says most tokens a second, from measured costs; of equals
    the smallest.

    `tokens_per_call[gamma]` and `verify_s[gamma]`: tokens that a call yields and seconds that it
    takes with gamma drafted tokens, from 0 (a plain step) on; `draft_s`: seconds of one step of the
    draft. ValueError for lists of different lengths, a call that says less than one token or more
    than are drafted and one, or times that are not positive and finite.
    """
    if not len(tokens_per_call) == len(verify_s) > 0:
        raise ValueError(
            "tokens_per_call and verify_s have one entry for each number of drafted tokens, from 0"
            f" on; got {len(tokens_per_call)} and {len(verify_s)}."
        )
    if not 0 <= draft_s < math.inf or not all(0 < s < math.inf for s in verify_s):
        raise ValueError(f"times are positive and finite; got {draft_s} and {list(verify_s)}.")
    for gamma, tokens in enumerate(tokens_per_call):
        if not 1 - 1e-9 <= tokens <= (gamma + 1) * (1 + 1e-9):  # rounded means are taken
            raise ValueError(
                f"a call with {gamma} drafted tokens says 1 to {gamma + 1}; got {tokens}."
            )
    rates = [
        tokens / (gamma * draft_s + seconds)
        for gamma, (tokens, seconds) in enumerate(zip(tokens_per_call, verify_s, strict=True))
    ]
    return rates.index(max(rates))
