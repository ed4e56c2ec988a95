"""How far windowed layers reach, where a ring puts a token, and what a window saves.

A window of w lets a query see the last w keys, its own included. Cache bytes are in
`theory.kv_cache`, pairs of a query and a key in `theory.arithmetic_intensity`. Sources: Beltagy et
al. 2020 (Longformer, arXiv 2004.05150); Jiang et al. 2023 (Mistral 7B, arXiv 2310.06825).
"""

from twophase.theory._domain import Number, formula
from twophase.theory._ops import ceil_div, floor_div, minimum
from twophase.theory.arithmetic_intensity import attention_pairs, window_pairs


@formula(zero_ok=("n_layers",), whole=("n_layers", "window"))
def receptive_field(n_layers: Number, window: Number) -> Number:
    """Tokens that can matter to an output behind so many windowed layers, its own included: each
    layer reaches `window - 1` further back."""
    return n_layers * (window - 1) + 1


@formula(zero_ok=("distance",), whole=("distance", "window"), least={"window": 2})
def layers_to_reach(distance: Number, window: Number) -> Number:
    """The fewest windowed layers through which a token so far back can matter; 0 for the token
    itself."""
    return ceil_div(distance, window - 1)


@formula(zero_ok=("position",), whole=("position", "slots"))
def ring_slot(position: Number, slots: Number) -> Number:
    """The slot of the token at this position: the remainder, so that the newest token takes the
    place of the oldest."""
    return position - slots * floor_div(position, slots)


@formula(zero_ok=("start",), whole=("start", "T", "window"))
def chunk_keys(start: Number, T: Number, window: Number) -> Number:
    """Keys that T new tokens behind `start` others need together: the `window - 1` before the
    first of them, as far as there are any, and their own."""
    return minimum(start, window - 1) + T


@formula(whole=("T", "window"))
def window_pairs_share(T: Number, window: Number) -> Number:
    """Of the pairs that a causal prefill of T tokens scores, the share that the window leaves."""
    return window_pairs(T, window) / attention_pairs(T, T, causal=True)


@formula(zero_ok=("n_local_layers",))
def balance_context(n_global_layers: Number, n_local_layers: Number, window: Number) -> Number:
    """The context at which the global layers of a stack hold as many positions as its local ones,
    whose windows are full; beyond it the global layers are most of the cache. (Below the window
    all layers hold alike, and it is no such context.)"""
    return n_local_layers * window / n_global_layers
