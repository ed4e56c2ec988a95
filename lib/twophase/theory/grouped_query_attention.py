"""What sharing keys and values among query heads changes, beside the bytes of the cache
(`kv_cache`) and the intensity of attention (`arithmetic_intensity`).

G = N / K query heads read one KV head. Sources: Shazeer 2019 (K = 1); Ainslie et al. 2023 (1 < K <
N); Touvron et al. 2023 (MLPs widened by what sharing saves).
"""

from twophase.theory._domain import Number, formula
from twophase.theory._ops import ceil_div, divide_or_infinity


@formula()
def critical_group(
    S: Number,
    flops_per_s: Number,
    bytes_per_s: Number,
    T: Number = 1,
    bytes_per_value: Number = 2,
) -> Number:
    """Query heads per KV head at which attention of T queries over S keys takes as long to compute
    as to read: where `attention_intensity_simple` meets the ridge. Infinite where queries and
    outputs alone keep it memory bound."""
    return divide_or_infinity(
        flops_per_s * bytes_per_value * S,
        T * (2 * S * bytes_per_s - flops_per_s * bytes_per_value),
    )


@formula(ordered=(("K_new", "K"),))
def mlp_width_of_equal_params(
    F: Number, K: Number, K_new: Number, H: Number, gated: bool = True
) -> Number:
    """The MLP width at which a model with K_new KV heads has as many parameters as with K heads and
    width F: each head less frees a key and a value projection."""
    return F + 2 * (K - K_new) * H / (3 if gated else 2)


@formula(whole=("K", "n_chips"))
def kv_heads_per_chip(K: Number, n_chips: Number) -> Number:
    """KV heads that the fullest of n_chips chips keeps: never less than one, however many chips
    there are."""
    return ceil_div(K, n_chips)


@formula(whole=("K", "n_chips"))
def kv_copies(K: Number, n_chips: Number) -> Number:
    """What n_chips chips set aside, each as much as the fullest, in whole caches: 1 if the heads
    divide evenly, n_chips / K where there are more chips than heads."""
    return n_chips * kv_heads_per_chip(K, n_chips) / K
