"""What a cache wastes, in a piece and in blocks, and what it costs to take one away.

Three kinds of waste (Kwon et al., 2023, section 3.1): *reserved*, for tokens that may still come;
*internal*, places of the last block that no token will take; *external*, gaps too small for
anybody, which blocks of one size do not have.
"""

from collections.abc import Sequence

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


@formula(least={"n_tokens": 1})
def recompute_s(n_tokens: Number, token_flops: Number, flops_per_s: Number) -> Number:
    """Seconds to read so many tokens again, all in one pass, where arithmetic bounds it.
    `token_flops`: FLOPs of a token in the products with weights, 2 for each; attention's grow with
    the square of the length and are left out, so that it is a lower bound."""
    return n_tokens * token_flops / flops_per_s


@formula()
def break_even_link_bytes_per_s(
    token_bytes: Number, token_flops: Number, flops_per_s: Number
) -> Number:
    """The link over which `swap_s` takes as long as `recompute_s`: both grow with the tokens, which
    cancel. Over a faster one, swapping is cheaper."""
    return 2 * token_bytes * flops_per_s / token_flops


def least_blocks(sequences: Sequence[Sequence[int]], block_size: int) -> int:
    """Blocks that hold these sequences if whatever begins alike lies in one place: as many as there
    are different beginnings, cut where blocks end. ValueError for a block below 1 place."""
    if block_size < 1:
        raise ValueError(f"a block has at least 1 place; got {block_size}.")
    beginnings = {
        tuple(tokens[: start + block_size])
        for tokens in sequences
        for start in range(0, len(tokens), block_size)
    }
    return len(beginnings)
