"""The packed tensors of published checkpoints, GPTQ's and AWQ's, as `Integers`.

Both keep int32 words of eight 4-bit codes and an affine grid, as matrices [inputs, outputs]; what
they pack along, and in which order, differs.

- GPTQ: `qweight` [I·bits / 32, O], words along the inputs, the lowest bits first; `qzeros` [groups,
  O·bits / 32], words along the outputs, holding z − 1 (in the format "gptq_v2" z); `scales`
  [groups, O]; `g_idx` [I], the group of each input.
- AWQ: `qweight` [I, O / 8] and `qzeros` [groups, O / 8], words along the outputs, whose eight codes
  lie in the order 0, 2, 4, 6, 1, 3, 5, 7; `scales` [groups, O].
"""

import torch

from twophase.kernels.quantization.integers import IntegerFormat, Integers, from_codes

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # which output lies at each place of a word
WORD = 32


def from_gptq(
    qweight: torch.Tensor,
    qzeros: torch.Tensor,
    scales: torch.Tensor,
    bits: int = 4,
    g_idx: torch.Tensor | None = None,
    minus_one: bool = True,
) -> Integers:
    """A layer of a GPTQ checkpoint. `minus_one`: zero points are stored less one, as all but
    "gptq_v2" do.

    Raises ValueError for bits that do not fill words, tensors that do not fit each other, and
    inputs whose groups are not runs (act-order: desc_act).
    """
    if bits not in (2, 4, 8):
        raise ValueError(f"GPTQ words hold codes of 2, 4 or 8 bits; got {bits}.")
    each = WORD // bits
    inputs, outputs, groups = len(qweight) * each, qweight.shape[1], len(scales)
    _check(qweight, (inputs // each, outputs), "qweight")
    _check(qzeros, (groups, outputs // each), "qzeros")
    size = _group(inputs, groups, scales, outputs)
    if g_idx is not None and not torch.equal(
        g_idx.long(), torch.arange(inputs, device=g_idx.device) // size
    ):
        raise ValueError(
            "this layer's inputs are ordered by size (desc_act): its groups are no runs, and no"
            " format here holds them."
        )
    codes = _fields(qweight.T, bits).flatten(-2)  # [O, I]
    zeros = _fields(qzeros, bits).flatten(-2).T  # [O, groups]
    zeros = (zeros + int(minus_one)) & (1 << bits) - 1
    how = IntegerFormat(bits, size, affine=True, scale_dtype=scales.dtype)
    return from_codes(codes, how, scales.T.contiguous(), zeros)


def from_awq(qweight: torch.Tensor, qzeros: torch.Tensor, scales: torch.Tensor) -> Integers:
    """A layer of an AWQ checkpoint (4 bits, "gemm"). Raises ValueError for tensors that do not fit
    each other."""
    inputs, outputs, groups = len(qweight), 8 * qweight.shape[1], len(scales)
    _check(qweight, (inputs, outputs // 8), "qweight")
    _check(qzeros, (groups, outputs // 8), "qzeros")
    size = _group(inputs, groups, scales, outputs)
    how = IntegerFormat(4, size, affine=True, scale_dtype=scales.dtype)
    place = [AWQ_ORDER.index(j) for j in range(8)]
    codes, zeros = (_fields(words, 4)[..., place].flatten(-2).T for words in (qweight, qzeros))
    return from_codes(codes, how, scales.T.contiguous(), zeros)


def _fields(words: torch.Tensor, bits: int) -> torch.Tensor:
    """The codes of int32 words [...], the lowest bits first: [..., 32 / bits]."""
    places = torch.arange(0, WORD, bits, device=words.device)
    return (words.long()[..., None] >> places) & (1 << bits) - 1


def _check(words: torch.Tensor, shape: tuple[int, ...], name: str) -> None:
    if words.dtype != torch.int32 or tuple(words.shape) != shape or 0 in shape:
        raise ValueError(
            f"{name} is int32 {list(shape)} beside the other tensors; got {words.dtype}"
            f" {list(words.shape)}."
        )


def _group(inputs: int, groups: int, scales: torch.Tensor, outputs: int) -> int:
    """Inputs of a group."""
    if tuple(scales.shape) != (groups, outputs) or inputs % groups:
        raise ValueError(
            f"scales [groups, {outputs}] whose groups divide {inputs} inputs are expected; got"
            f" {list(scales.shape)}."
        )
    return inputs // groups
