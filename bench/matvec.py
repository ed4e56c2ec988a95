"""Matrix times vector, the work of a decode step at batch 1: what share of the memory's read
bandwidth does each kernel reach? And matrix times a few vectors, as a verification of drafted
tokens takes it.

Every kernel is alternated with reads of a large buffer, in the same run; shares are medians of
ratios within a round, to the fastest of these reads.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numba
import numpy as np
import torch
from reading import at_least_1, reads, rested, seconds
from torch.nn import functional

from twophase.kernels.compiled.codes import pack_for_loops
from twophase.kernels.compiled.linear import project_add
from twophase.kernels.compiled.loops import as_numpy
from twophase.kernels.compiled.quantized import quantized_matvec
from twophase.kernels.compiled.several import add_several
from twophase.kernels.compiled.threads import workers_of_parallel_loops
from twophase.kernels.matvec import matvec, quantize_rows
from twophase.kernels.quantization.integers import IntegerFormat, encode
from twophase.measure import Table, race, si
from twophase.measure.yardsticks import buffer_bytes

FORMATS = {
    "int8, scales for 32": IntegerFormat(8, 32, scale_dtype=torch.bfloat16),
    "int4, scales for 32": IntegerFormat(4, 32, scale_dtype=torch.bfloat16),
    "int4, scales for 128": IntegerFormat(4, 128, scale_dtype=torch.bfloat16),
}
SHAPES = ((4096, 14336), (1024, 4096))  # the MLP of an 8B model, and of a small one


@numba.njit(fastmath=True, cache=True)
def one_thread(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """The plain loop without threads: what one core reads."""
    for row in range(w.shape[0]):
        total = np.float32(0)
        for i in range(w.shape[1]):
            total += w[row, i] * x[i]
        y[row] = total


def kernels(n_in: int, n_out: int, copies: int) -> dict[str, tuple[Callable[[], object], int]]:
    """Kernels by name, with the bytes of weights each reads; it goes through `copies` matrices, so
    that none stays in cache."""
    fp32 = [torch.randn(n_out, n_in) for _ in range(copies)]
    bf16 = [w.bfloat16() for w in fp32]
    int8 = [quantize_rows(w) for w in fp32]
    x, x16, y = torch.randn(n_in), torch.randn(1, n_in).bfloat16(), np.empty(n_out, np.float32)
    x8 = x[None].bfloat16()
    size = n_in * n_out
    found: dict[str, tuple[Callable[[], object], int]] = {
        "F.linear fp32": (lambda: [functional.linear(x[None], w) for w in fp32], 4 * size * copies),
        "torch.mv fp32": (lambda: [torch.mv(w, x) for w in fp32], 4 * size * copies),
        "numpy fp32": (lambda: [w.numpy() @ x.numpy() for w in fp32], 4 * size * copies),
        "one Numba thread fp32": (
            lambda: [one_thread(w.numpy(), x.numpy(), y) for w in fp32],
            4 * size * copies,
        ),
        "our matvec fp32": (lambda: [matvec(w, x) for w in fp32], 4 * size * copies),
        "F.linear bf16": (lambda: [functional.linear(x16, w) for w in bf16], 2 * size * copies),
        "our matvec int8": (lambda: [matvec(w, x, s) for w, s in int8], size * copies),
        "dequantize, then F.linear": (
            lambda: [functional.linear(x[None], w * s[:, None]) for w, s in int8],
            size * copies,
        ),
    }
    scales = [s.bfloat16() for _, s in int8]
    packed = [w for w, _ in int8]
    if hasattr(torch, "_weight_int8pack_mm"):
        pairs = list(zip(packed, scales, strict=True))
        found["torch int8pack, bf16 in"] = (
            lambda: [torch._weight_int8pack_mm(x8, w, s) for w, s in pairs],
            size * copies,
        )
    return found


def loops(n_in: int, n_out: int, copies: int) -> dict[str, tuple[Callable[[], object], int]]:
    """The loops of compiled models, in bf16 and in codes."""
    x, y, bias = torch.randn(n_in), np.zeros(n_out, np.float32), np.zeros(n_out, np.float32)
    n = workers_of_parallel_loops()
    bf16 = [as_numpy(torch.randn(n_out, n_in).bfloat16()) for _ in range(copies)]
    found: dict[str, tuple[Callable[[], object], int]] = {
        "our loops bf16": (
            lambda: [project_add.on(n)(w, bias, x.numpy(), y, n) for w in bf16],
            2 * n_in * n_out * copies,
        )
    }
    for name, how in FORMATS.items():
        codes = [pack_for_loops(encode(torch.randn(n_out, n_in), how)) for _ in range(copies)]
        found[f"our loops {name}"] = (
            lambda codes=codes: [quantized_matvec(w, x) for w in codes],
            sum(w.nbytes for w in codes),
        )
    return found


def several(
    n_in: int, n_out: int, copies: int, T: int
) -> dict[str, tuple[Callable[[], object], int]]:
    """Products of T tokens, by torch and by the loops of compiled models, which take fp32 of both
    kinds of weights."""
    x, bias = torch.randn(T, n_in), np.zeros(n_out, np.float32)
    y, n = np.zeros((T, n_out), np.float32), workers_of_parallel_loops()
    found: dict[str, tuple[Callable[[], object], int]] = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        ws, size = [torch.randn(n_out, n_in).to(dtype) for _ in range(copies)], n_in * n_out
        arrays, given = [as_numpy(w) for w in ws], x.to(dtype)
        moved = size * copies * ws[0].element_size()
        found[f"F.linear {name}, {T} tokens"] = (
            lambda ws=ws, given=given: [functional.linear(given, w) for w in ws],
            moved,
        )
        found[f"our loops {name}, {T} tokens"] = (
            lambda arrays=arrays: [add_several.on(n)(w, bias, x.numpy(), y, n) for w in arrays],
            moved,
        )
    return found


def run(n_in: int, n_out: int, budget_s: float, T: int) -> Table:
    """Race the kernels of one shape against a read of memory."""
    n_bytes = buffer_bytes()
    copies = max(1, min(8, n_bytes // (4 * n_in * n_out)))
    found = kernels(n_in, n_out, copies) | loops(n_in, n_out, copies)
    found |= several(n_in, n_out, copies, T)
    limits = reads(n_bytes)
    steps = {name: f for name, (f, _) in found.items()}
    result = race(rested(limits | steps), budget_s=budget_s)
    fastest = min(limits, key=lambda name: result[name].median_s)
    rows: list[list[object]] = []
    for name, (size, calls) in (
        dict.fromkeys(limits, (n_bytes, 1))
        | {name: (moved, copies) for name, (_, moved) in found.items()}
    ).items():
        median_s, share = result[name].median_s, result.ratio(fastest, name) * size / n_bytes
        rows.append(
            [name, size / calls / 1e6, si(median_s / calls, "s"), si(size / median_s, "B/s"), share]
        )
    caption = (
        f"{n_out} x {n_in} matrix times a vector, {torch.get_num_threads()} threads,"
        f" {result[fastest].count} rounds"
    )
    columns = ["kernel", "weights read [MB]", "median", "rate", "share of the fastest read"]
    return Table(rows, columns, caption, digits=3)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=seconds, default=20.0, help="budget per shape (default 20)"
    )
    parser.add_argument(
        "--tokens", type=at_least_1, default=5, help="of the products of several (default 5)"
    )
    options = parser.parse_args()
    torch.manual_seed(0)
    with torch.inference_mode():
        for n_in, n_out in SHAPES:
            print(run(n_in, n_out, options.seconds, options.tokens), end="\n\n")


if __name__ == "__main__":
    main()
