"""Products of quantized matrices with the vector of a decode step: codes are read, never a widened
matrix.

Fewer bytes are less time only if a loop reads them as fast as memory delivers, and the layout
decides that. Codes of 8 bits lie as the matrix does: a row is a dot product, its scale is applied
once, at the end. Codes of 4 bits lie in tiles of 128 rows: for each input, 64 bytes, of which byte
r holds rows r (lower half) and r + 64. So the loop runs over rows, side by side in vector
registers, for four inputs at a time; a group of inputs needs its scales once, at its end, and no
sum runs across a register. In the natural layout, where a group is a short run of a row, each group
ends in such a sum.

    Σ_i s_g·(c_i − z_g)·x_i  =  s_g·(Σ_i c_i·x_i − z_g·Σ_i x_i)    for the inputs i of a group g
"""

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import torch
from numba.extending import overload

from twophase.kernels.compiled.linear import activate, normalize, share
from twophase.kernels.compiled.loops import inner, loop
from twophase.kernels.compiled.numbers import value_of
from twophase.kernels.compiled.threads import workers_of_parallel_loops
from twophase.kernels.quantization.integers import Integers

_f32, _i32 = np.float32, np.int32
TILE = 128  # rows of a tile
HALF = TILE // 2
Array = np.ndarray


@dataclass(frozen=True)
class Packed:
    """A matrix [outputs, inputs] as loops read it: `arrays` are codes, scales, zero points.

    8 bits: int8 [outputs, inputs], fp32 [outputs], empty. 4 bits: uint8 [tiles, inputs, 64], fp32
    or bf16 bits [tiles, groups, 128], uint8 [tiles, groups, 128] (empty without: then it is 8).
    """

    outputs: int
    inputs: int
    arrays: tuple[Array, Array, Array]

    @property
    def nbytes(self) -> int:
        """Bytes that a product reads."""
        return sum(array.nbytes for array in self.arrays)

    def sums(self) -> Array:
        """Room for the sum of each group's inputs, fp32 [groups]."""
        groups = self.arrays[1].shape[1] if self.arrays[0].ndim == 3 else 0
        return np.empty(groups, np.float32)


def pack_for_loops(*matrices: Integers) -> Packed:
    """Quantized matrices of the same inputs, one below the other, as loops read them (a copy).

    Raises ValueError for what has no loop: other than absmax of 8 bits with a scale a channel, or 4
    bits in groups of a multiple of 4 that divide the inputs; and for a mixture of these.
    """
    first = matrices[0]
    f = first.format
    if any(m.format != f or m.inputs != first.inputs for m in matrices):
        raise ValueError("matrices that one loop reads have one format and the same inputs.")
    if f.bits == 8 and f.group == "channel" and not f.affine:
        return _rows_of_bytes(matrices)
    size = f.group_of(first.inputs)
    if f.bits != 4 or f.group == "tensor" or size % 4 or first.inputs % size:
        raise ValueError(
            "loops read absmax int8 with a scale a channel, and int4 in groups of a multiple of 4"
            f" that divide the inputs; got {f.bits} bits, groups of {f.group}, {first.inputs}"
            " inputs."
        )
    unpacked = [m.unpacked() for m in matrices]
    codes = torch.cat([codes for codes, _ in unpacked])
    outputs, groups = len(codes), first.inputs // size
    # rows that fill the last tile have scale 0
    tiles = _tiles(codes)  # [tiles, 128, inputs]
    halves = tiles[:, :HALF] | tiles[:, HALF:] << 4  # [tiles, 64, inputs]
    scales = _tiles(torch.cat([m.scales for m in matrices]))  # [tiles, 128, groups]
    zeros = torch.empty(0, groups, TILE, dtype=torch.uint8)
    if f.affine:
        zeros = _tiles(torch.cat([z for _, z in unpacked if z is not None])).transpose(1, 2)
    bits = scales.dtype == torch.bfloat16
    lanes = (scales.view(torch.uint16) if bits else scales.float()).transpose(1, 2)
    arrays = (halves.transpose(1, 2), lanes, zeros)
    return Packed(outputs, first.inputs, tuple(a.contiguous().numpy() for a in arrays))  # type: ignore[arg-type]


def _rows_of_bytes(matrices: tuple[Integers, ...]) -> Packed:
    codes = torch.cat([m.unpacked()[0] for m in matrices])  # [outputs, inputs]
    scales = torch.cat([m.scales[:, 0].float() for m in matrices])  # [outputs]
    signed = (codes.to(torch.int16) - matrices[0].format.half).to(torch.int8)
    arrays = signed.numpy(), scales.numpy(), np.empty(0, np.uint8)
    return Packed(len(codes), codes.shape[1], arrays)


def _tiles(rows: torch.Tensor) -> torch.Tensor:
    """[O, n] as [tiles, 128, n], zeros at the end."""
    padded = torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % TILE))
    return padded.view(-1, TILE, rows.shape[1])


def quantized_matvec(w: Packed, x: torch.Tensor) -> torch.Tensor:
    """w x on all threads: x fp32 [inputs], returns fp32 [outputs]. ValueError for another x."""
    if x.dtype != torch.float32 or tuple(x.shape) != (w.inputs,) or x.device.type != "cpu":
        raise ValueError(
            f"this matrix multiplies fp32 [{w.inputs}] in the CPU's memory; got {x.dtype}"
            f" {list(x.shape)} on {x.device}."
        )
    y = torch.zeros(w.outputs)
    n = workers_of_parallel_loops()
    bias = np.zeros(w.outputs, np.float32)
    add_product.on(n)(w.arrays, bias, x.contiguous().numpy(), w.sums(), y.numpy(), n)
    return y


@inner
def n_tiles(outputs: int) -> int:
    """Tiles of a matrix of so many rows."""
    return -(-outputs // TILE)


@inner
def sum_groups(x: Array, sums: Array) -> None:
    """The sum of each group of inputs; nothing where there are no groups."""
    if len(sums) == 0:
        return
    size = len(x) // len(sums)
    for g in range(len(sums)):
        total = _f32(0)
        for i in range(g * size, (g + 1) * size):
            total += x[i]
        sums[g] = total


def multiply_tile(w: Any, tile: int, x: Array, sums: Array, out: Array) -> None:
    """out [128] = the rows of one tile times x; behind the matrix's last row it means nothing. Only
    compiled code calls it: `w` is `Packed.arrays`."""
    raise NotImplementedError("multiply_tile is for compiled code.")


@overload(multiply_tile)
def _multiply_tile(w, tile, x, sums, out):  # type: ignore[no-untyped-def]
    return _int4_tile if w[0].ndim == 3 else _int8_tile


def _int8_tile(w, tile, x, sums, out):  # type: ignore[no-untyped-def]
    codes, scales = w[0], w[1]
    for row in range(tile * TILE, min(len(codes), (tile + 1) * TILE)):
        total = _f32(0)
        for i in range(codes.shape[1]):
            total += _f32(codes[row, i]) * x[i]
        out[row - tile * TILE] = total * scales[row]


def _int4_tile(w, tile, x, sums, out):  # type: ignore[no-untyped-def]
    codes, scales, zeros = w
    size = codes.shape[1] // scales.shape[1]
    low, high = np.empty(HALF, _f32), np.empty(HALF, _f32)  # of rows r and r + 64
    out[:] = _f32(0)
    out_low, out_high = out[:HALF], out[HALF:]
    for g in range(scales.shape[1]):
        low[:], high[:] = _f32(0), _f32(0)
        for i in range(g * size, (g + 1) * size, 4):
            a, b, c, d = x[i], x[i + 1], x[i + 2], x[i + 3]
            for r in range(HALF):
                p, q = _i32(codes[tile, i, r]), _i32(codes[tile, i + 1, r])
                u, v = _i32(codes[tile, i + 2, r]), _i32(codes[tile, i + 3, r])
                low[r] += a * lower(p) + b * lower(q) + c * lower(u) + d * lower(v)
                high[r] += a * upper(p) + b * upper(q) + c * upper(u) + d * upper(v)
        for r in range(HALF):
            zero = _f32(zeros[tile, g, r]) if len(zeros) else _f32(8)
            out_low[r] += value_of(scales[tile, g, r]) * (low[r] - zero * sums[g])
        for r in range(HALF):
            zero = _f32(zeros[tile, g, HALF + r]) if len(zeros) else _f32(8)
            out_high[r] += value_of(scales[tile, g, HALF + r]) * (high[r] - zero * sums[g])


@inner
def lower(p: np.int32) -> np.float32:
    """The code in the lower half of a byte. In int32 throughout: int64 would halve the lanes."""
    return _f32(_i32(p & _i32(15)))


@inner
def upper(p: np.int32) -> np.float32:
    """The code in the upper half of a byte."""
    return _f32(_i32(p >> _i32(4)))


@inner
def product_of_part(
    w: Any, h: Array, sums: Array, bias: Array, part: int, parts: int, y: Array
) -> None:
    """y = w h + bias: the rows of the tiles that one of so many parts has."""
    begin, end = share(part, parts, n_tiles(len(y)))
    out = np.empty(TILE, _f32)
    for tile in range(begin, end):
        multiply_tile(w, tile, h, sums, out)
        for row in range(tile * TILE, min(len(y), (tile + 1) * TILE)):
            y[row] = out[row - tile * TILE] + bias[row]


@loop
def norm_product(
    x: Array, scale: Array, shift: Array, eps: np.float32, w: Any, bias: Array, h: Array,
    sums: Array, y: Array, parts: int,
) -> None:  # fmt: skip
    """y = w h + bias with h the norm of x: queries, keys and values. h [D] and sums are scratch."""
    normalize(x, scale, shift, eps, h)
    sum_groups(h, sums)
    for part in numba.prange(parts):
        product_of_part(w, h, sums, bias, part, parts, y)


@loop
def norm_activate_product(
    x: Array, scale: Array, shift: Array, eps: np.float32, gate: Any, up: Any, bias: Array,
    activation: int, h: Array, sums: Array, y: Array, parts: int,
) -> None:  # fmt: skip
    """y = activation(gate h + bias) · (up h + bias) with h the norm of x, as `norm_activate`."""
    normalize(x, scale, shift, eps, h)
    sum_groups(h, sums)
    F = len(y)
    for part in numba.prange(parts):
        product_of_part(gate, h, sums, bias, part, parts, y)
        begin, end = share(part, parts, n_tiles(F))
        ups = np.empty(TILE, _f32)
        for tile in range(begin, end):
            multiply_tile(up, tile, h, sums, ups)
            for row in range(tile * TILE, min(F, (tile + 1) * TILE)):
                y[row] = activate(activation, y[row]) * (ups[row - tile * TILE] + bias[F + row])


@loop
def add_product(w: Any, bias: Array, h: Array, sums: Array, x: Array, parts: int) -> None:
    """x += w h + bias: what attention or MLP adds to the stream."""
    sum_groups(h, sums)
    for part in numba.prange(parts):
        begin, end = share(part, parts, n_tiles(len(x)))
        out = np.empty(TILE, _f32)
        for tile in range(begin, end):
            multiply_tile(w, tile, h, sums, out)
            for row in range(tile * TILE, min(len(x), (tile + 1) * TILE)):
                x[row] += out[row - tile * TILE] + bias[row]


@loop
def norm_add_product(
    w: Any, bias: Array, h: Array, sums: Array, scale: Array, shift: Array, eps: np.float32,
    y: Array, x: Array, parts: int,
) -> None:  # fmt: skip
    """x += norm(w h + bias), as Gemma adds; y [D] is scratch."""
    sum_groups(h, sums)
    for part in numba.prange(parts):
        product_of_part(w, h, sums, bias, part, parts, y)
    normalize(y, scale, shift, eps, y)
    for i in range(len(x)):
        x[i] += y[i]
