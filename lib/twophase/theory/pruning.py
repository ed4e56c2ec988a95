"""What is left of a model when parts of it go, in parameters and bytes, and what zeros save that
stay where they are."""

from dataclasses import replace
from typing import Any

from twophase.theory._domain import Number, formula
from twophase.theory._ops import ceil_div, maximum
from twophase.theory.architecture import Architecture


def pruned(
    arch: Architecture,
    *,
    L: int | None = None,
    K: int | None = None,
    F: int | None = None,
    D: int | None = None,
) -> Architecture:
    """The sizes that stay when every layer keeps K KV heads, each with all query heads that read
    it, and F channels, the stream D numbers, and L layers are left; None: as many as there are.

    ValueError for more than there is, for layers of different kinds or sizes (which of them went?),
    and for experts, latents and states, whose widths are others.
    """
    same = isinstance(arch.attention, str) and arch.widths is None and arch.kv_source is None
    if not same or arch.moe is not None or arch.attention not in ("full", "sliding"):
        raise ValueError(
            f"{arch.name}: only equal layers of full or sliding attention and one MLP are counted"
            " here."
        )
    left = {"L": L, "K": K, "F": F, "D": D}
    for letter, n in left.items():
        whole = getattr(arch, letter)
        if n is not None and not 1 <= n <= whole:
            raise ValueError(f"{arch.name} has {whole} of {letter}; {n} of them cannot stay.")
    sizes: dict[str, Any] = {letter: n for letter, n in left.items() if n is not None}
    return replace(arch, **sizes, N=arch.G * sizes.get("K", arch.K))


@formula(zero_ok=("n",), whole=("n",))
def two_four_bytes(n: Number, bytes_per_number: Number = 2) -> Number:
    """Bytes of n weights of which two in each four stay: half the numbers, and two bits of place
    for each. Of bf16 that is 9/16, not a half."""
    return ceil_div(n, 2) * bytes_per_number + ceil_div(n, 8)


@formula(zero_ok=("n", "density"), fraction=("density",), whole=("n",))
def bitmap_bytes(n: Number, density: Number, bytes_per_number: Number = 2) -> Number:
    """Bytes of n weights of which a share `density` is not zero: those, and a bit for each."""
    return density * n * bytes_per_number + ceil_div(n, 8)


@formula(zero_ok=("n", "density"), fraction=("density",))
def indexed_bytes(
    n: Number, density: Number, bytes_per_number: Number = 2, bytes_per_index: Number = 4
) -> Number:
    """Bytes of n weights of which a share `density` is not zero, each with the number of its
    column, as in a CSR matrix (whose row pointers are left out)."""
    return density * n * (bytes_per_number + bytes_per_index)


@formula()
def two_four_speedup(
    B: Number, bytes_per_s: Number, flops_per_s: Number, bytes_per_number: Number = 2
) -> Number:
    """How many times faster the weights' products of a step become on a chip whose matrix units
    skip two of four: from dense bytes over those of 2:4 for few tokens to 2 for many, where the
    chip computes at twice its dense rate `flops_per_s`. An upper bound: no more than arithmetic and
    bandwidth."""
    dense_s = maximum(bytes_per_number / bytes_per_s, 2 * B / flops_per_s)
    sparse = bytes_per_number / 2 + 1 / 8
    return dense_s / maximum(sparse / bytes_per_s, B / flops_per_s)
