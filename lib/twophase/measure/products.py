"""Products of one matrix with few tokens, in numbers and in codes: how fast each format's bytes are
read, and from how many tokens on fewer bytes save no time.

One token: loops that read a matrix once (`kernels.compiled`). More: torch's product for numbers;
codes are multiplied token by token, in the same loops, so that their arithmetic grows with every
token while their bytes do not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from twophase.kernels.compiled.codes import Packed, pack_for_loops
from twophase.kernels.compiled.linear import project_add
from twophase.kernels.compiled.loops import as_numpy
from twophase.kernels.compiled.pages import use_large_pages
from twophase.kernels.compiled.quantized import quantized_matvec
from twophase.kernels.compiled.threads import workers_of_parallel_loops
from twophase.kernels.quantization.integers import IntegerFormat, encode

from .stopwatch import Clock, race
from .yardsticks import buffer_bytes, readers

FORMATS: dict[str, torch.dtype | IntegerFormat] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "int8": IntegerFormat(8, 32, scale_dtype=torch.bfloat16),
    "int4": IntegerFormat(4, 32, scale_dtype=torch.bfloat16),
}
LEAST_WEIGHTS = 2**24  # in the copies of a matrix that a way goes through


@dataclass(frozen=True)
class Product:
    """One matrix times B tokens in a format: bytes of the matrix, codes with their scales, and the
    median time. `share`: of the fastest read of memory that there is, in the same rounds."""

    form: str
    B: int
    n_bytes: int
    median_s: float
    share: float

    @property
    def bytes_per_s(self) -> float:
        """Bytes of the matrix over the time of the product."""
        return self.n_bytes / self.median_s


def product_times(
    outputs: int,
    inputs: int,
    batches: Iterable[int] = (1,),
    formats: Iterable[str] = tuple(FORMATS),
    budget_s: float = 3.0,
    clock: Clock = time.perf_counter,
) -> list[Product]:
    """Race the products of a random matrix [outputs, inputs] with so many tokens, in each of these
    formats (names in FORMATS), within about `budget_s` for each number of tokens.

    Reads of a large buffer run between them, so that matrices come from memory. `clock` as in
    `race`: on one thread of a busy machine, processor time. Raises ValueError for a format that is
    not known.
    """
    formats = list(formats)
    if unknown := set(formats) - set(FORMATS):
        raise ValueError(f"formats are {', '.join(FORMATS)}; got {', '.join(sorted(unknown))}.")
    copies = max(1, LEAST_WEIGHTS // (outputs * inputs))
    weight = torch.randn(outputs, inputs)
    matrices = {form: _matrices(weight, FORMATS[form], copies) for form in formats}
    n_buffer = buffer_bytes()
    limits = {f"read, {name}": read for name, (read, _) in readers(n_buffer, "cpu").items()}
    found = []
    for B in batches:
        x = torch.randn(B, inputs)
        ways = {form: _way(matrices[form], x) for form in formats}
        result = race(limits | ways, budget_s=budget_s, warmup=1, clock=clock)
        fastest = min(limits, key=lambda name: result[name].median_s)
        for form in formats:
            n_bytes = matrices[form][0].nbytes
            share = result.ratio(fastest, form) * copies * n_bytes / n_buffer
            found.append(Product(form, B, n_bytes, result[form].median_s / copies, share))
    return found


def stops_paying(products: Iterable[Product], form: str, beside: str = "bf16") -> int | None:
    """The first number of tokens for which `form` was no faster than the format beside it; None if
    it always was. Both must have been measured for the same numbers of tokens (ValueError)."""
    times = {(p.form, p.B): p.median_s for p in products}
    batches = sorted(B for name, B in times if name == form)
    if not batches or any((beside, B) not in times for B in batches):
        raise ValueError(f"{form} and {beside} must be measured for the same numbers of tokens.")
    return next((B for B in batches if times[form, B] >= times[beside, B]), None)


def _matrices(
    weight: torch.Tensor, form: torch.dtype | IntegerFormat, copies: int
) -> list[torch.Tensor] | list[Packed]:
    """Copies of a matrix in a format, in large pages as a compiled model has them."""
    if isinstance(form, torch.dtype):
        tensors = [weight.to(form, copy=True) for _ in range(copies)]
        use_large_pages(*tensors)
        return tensors
    first = pack_for_loops(encode(weight, form))
    codes, *beside = first.arrays
    room = np.empty((copies, *codes.shape), codes.dtype)
    room[:] = codes
    return [Packed(first.outputs, first.inputs, (own, beside[0], beside[1])) for own in room]


def _way(matrices: list[torch.Tensor] | list[Packed], x: torch.Tensor) -> Callable[[], object]:
    """The products of all copies with x [B, inputs]."""
    if isinstance(matrices[0], Packed):
        return lambda: [quantized_matvec(w, token) for w in matrices for token in x]
    if len(x) > 1:
        tokens = x.to(matrices[0].dtype)
        return lambda: [functional.linear(tokens, w) for w in matrices]
    n = workers_of_parallel_loops()
    arrays, token = [as_numpy(w) for w in matrices], x[0].numpy()
    y, bias = np.zeros((2, len(matrices[0])), np.float32)
    add = project_add.on(n)
    return lambda: [add(w, bias, token, y, n) for w in arrays]
