"""A layer of E experts, k of them active for each token: how many a batch touches and reads, how
many visits find no room, and what travels when the experts lie on several chips.

Formulas for an even router assume that each token picks its k of E experts uniformly and
independently of the others; a trained router is less even (`expected_experts_by_share`). A visit is
one token at one expert: B tokens make k B of them. Parameters, total and active, are those of
`Architecture`.

Sources: Lepikhin et al. 2020 (GShard, arXiv 2006.16668) and Fedus et al. 2021 (Switch Transformer,
arXiv 2101.03961), for capacity; DeepSeek-AI 2024 (DeepSeek-V3, arXiv 2412.19437), for experts on
many chips.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from twophase.theory._domain import Number, formula
from twophase.theory._ops import ceil_div, exact, maximum


@formula(zero_ok=("B",), ordered=(("k", "E"),))
def expected_experts(B: Number, E: Number, k: Number) -> Number:
    """Distinct experts of a layer that B tokens touch on average: E (1 - (1 - k/E)^B).

    Assumes that every token picks its k of E experts uniformly and independently; a trained router
    is less even.
    """
    return E * (1 - (1 - k / E) ** B)


@formula(zero_ok=("B",))
def expected_experts_by_share(B: Number, shares: Sequence[float]) -> Number:
    """The same for a router that is not even: the sum over experts of 1 - (1 - q)^B.

    `shares`: for each expert the fraction of tokens that visit it, 0 to 1; they add up to k. Tokens
    are still independent of each other. Never more than `expected_experts` of as many experts and
    the same k. ValueError for a share that is no fraction, or for none at all.
    """
    if not len(shares) or not all(0 <= q <= 1 for q in shares):
        raise ValueError(
            "shares must be, for each expert, the fraction of tokens that visit it, from 0 to 1;"
            f" got {list(shares)}."
        )
    return sum(1 - (1 - q) ** B for q in shares)


@formula(least={"B": 1}, ordered=(("k", "E"),))
def visits_per_touched_expert(B: Number, E: Number, k: Number) -> Number:
    """Tokens that share the reading of an expert, on average: B k visits over the experts touched.

    In bf16 it is FLOPs per byte of the expert weights that are read. 1 for a single token, and
    B k / E once every expert is touched.
    """
    touched = maximum(expected_experts(B, E, k), k)  # a float near 1 loses k/E < 10^-16
    return B * k / touched


@formula(zero_ok=("B",), ordered=(("k", "E"),))
def expected_expert_bytes(
    B: Number,
    E: Number,
    k: Number,
    n_moe_layers: Number,
    expert_params: Number,
    bytes_per_param: Number = 2,
) -> Number:
    """Expert weights that one decode step of B sequences reads on average, each touched expert
    once."""
    return n_moe_layers * expected_experts(B, E, k) * expert_params * bytes_per_param


@formula(ordered=(("k", "E"),))
def expert_capacity(n_tokens: Number, E: Number, k: Number, capacity_factor: Number = 1) -> Number:
    """Visits that an expert has room for: the even share n_tokens k / E, times a factor, rounded up
    (Switch Transformer, eq. 3, where k is 1). Room for all, whatever the router does, takes
    n_tokens."""
    factor, n, active, experts = exact(capacity_factor, n_tokens, k, E)
    return ceil_div(factor * n * active, experts)


def expected_dropped_visits(n_tokens: int, E: int, k: int, capacity: int) -> float:
    """Visits that find no room on average, of the k n_tokens of a layer, under an even router.

    An expert's visitors are binomially distributed, n_tokens draws of chance k/E; those beyond
    `capacity` are dropped. ValueError unless all are whole numbers, 1 <= k <= E, none negative and
    n_tokens at most 10^6.
    """
    whole = all(type(n) is int for n in (n_tokens, E, k, capacity))
    if not whole or not 1 <= k <= E or not 0 <= n_tokens <= 10**6 or capacity < 0:
        raise ValueError(
            "dropped visits need whole numbers with 1 <= k <= E, 0 <= n_tokens <= 10^6 and a"
            f" capacity of 0 or more; got n_tokens = {n_tokens}, E = {E}, k = {k}, capacity ="
            f" {capacity}."
        )
    if k == E:
        return float(E * max(n_tokens - capacity, 0))
    p = k / E
    log_of_all = math.lgamma(n_tokens + 1)

    def chance(m: int) -> float:
        """That exactly m of the tokens visit one expert."""
        ways = log_of_all - math.lgamma(m + 1) - math.lgamma(n_tokens - m + 1)
        return math.exp(ways + m * math.log(p) + (n_tokens - m) * math.log1p(-p))

    beyond = ((m - capacity) * chance(m) for m in range(capacity + 1, n_tokens + 1))
    return E * math.fsum(beyond)


def expected_chips(E: int, k: int, n_chips: int) -> Fraction:
    """Chips among which a token's k experts lie on average, E / n_chips on each, under an even
    router.

    A chip holds none of them with chance C(E - E/n, k) / C(E, k). ValueError unless the experts
    divide evenly.
    """
    if not (1 <= k <= E and 1 <= n_chips <= E) or E % n_chips:
        raise ValueError(
            f"{E} experts, {k} per token, do not divide evenly over {n_chips} chips: take a number"
            " of chips that divides E, and k from 1 to E."
        )
    elsewhere = Fraction(math.comb(E - E // n_chips, k), math.comb(E, k))
    return n_chips * (1 - elsewhere)


@formula(whole=("n_chips",))
def all_to_all_bytes_per_chip(
    B: Number, D: Number, copies: Number, n_chips: Number, bytes_per_activation: Number = 2
) -> Number:
    """Bytes that a chip sends to the others on average to bring its tokens to their experts; the
    way back sends as many.

    B tokens of width D lie evenly on n chips, and each goes out in `copies`: k if every visit
    travels by itself, `expected_chips` if a chip gets a token once for all its experts there. Of
    these 1/n are at home already. n_chips = 1: nothing travels.
    """
    return B / n_chips * copies * D * bytes_per_activation * (n_chips - 1) / n_chips


@formula(
    zero_ok=("dense_params",),
    least={"n_chips": 1, "dense_copies": 1},
    ordered=(("dense_copies", "n_chips"),),
)
def expert_parallel_bytes_per_chip(
    dense_params: Number,
    expert_params: Number,
    n_chips: Number,
    dense_copies: Number = 1,
    bytes_per_param: Number = 2,
) -> Number:
    """Weights that each of n chips holds: all experts dealt out, everything else in `dense_copies`
    copies over the chips (1: divided by all of them; n_chips: a copy on each, no more)."""
    return (dense_copies * dense_params + expert_params) * bytes_per_param / n_chips
