"""What a cache wastes, in a piece and in blocks, and what it costs to take one away.

Three kinds of waste (Kwon et al., 2023, section 3.1): *reserved*, for tokens that may still come;
*internal*, places of the last block that no token will take; *external*, gaps too small for
anybody, which blocks of one size do not have.
"""

from twophase.theory._domain import Number, formula
from twophase.theory._ops import ceil_div, half, sqrt


@formula(whole=("n_tokens", "block_size"), zero_ok=("n_tokens",))
def blocks_of(n_tokens: Number, block_size: Number) -> Number:
    """Blocks that so many tokens fill, the last one perhaps in part."""
    return ceil_div(n_tokens, block_size)


@formula(whole=("n_tokens", "block_size"), zero_ok=("n_tokens",))
def internal_waste_tokens(n_tokens: Number, block_size: Number) -> Number:
    """Places of the last block that stay empty."""
    return blocks_of(n_tokens, block_size) * block_size - n_tokens


@formula(least={"block_size": 1})
def mean_internal_waste_tokens(block_size: Number) -> Number:
    """The same on average, over sequences whose lengths fall evenly on the places of a block."""
    return half(block_size - 1)


@formula(least={"block_size": 1})
def overhead_bytes(
    n_tokens: Number, block_size: Number, token_bytes: Number, block_bytes: Number
) -> Number:
    """What blocks of this size cost a sequence: empty places on average, and `block_bytes` for each
    block (its entry in tables, or the bytes that could be read while a block is looked up)."""
    empty = mean_internal_waste_tokens(block_size) * token_bytes
    return empty + n_tokens / block_size * block_bytes


@formula()
def best_block_size(n_tokens: Number, token_bytes: Number, block_bytes: Number) -> Number:
    """Where `overhead_bytes` is least, as a real number: larger blocks waste places, smaller ones
    need more tables."""
    return sqrt(2 * n_tokens * block_bytes / token_bytes)


@formula(least={"n_tokens": 1})
def swap_s(n_tokens: Number, token_bytes: Number, link_bytes_per_s: Number) -> Number:
    """Seconds to put a sequence's cache aside and to fetch it again, over a link to elsewhere."""
    return 2 * n_tokens * token_bytes / link_bytes_per_s
