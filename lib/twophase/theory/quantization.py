"""Bytes of quantized weights with everything that lies beside the codes, and when fewer bytes are
less time.

A matrix is [O, I]: O outputs, I inputs, rows of inputs. Codes are packed row by row, so a row whose
codes do not fill its last byte rounds up.
"""

from dataclasses import dataclass
from fractions import Fraction

from twophase.theory._domain import Number, formula
from twophase.theory._ops import ceil_div, maximum, sqrt


@formula(zero_ok=("n",), whole=("n", "bits"))
def packed_bytes(n: Number, bits: Number) -> Number:
    """Bytes of n codes of so many bits side by side."""
    return ceil_div(n * bits, 8)


@formula(whole=("bits",), least={"bits": 2})
def absmax_step(largest: Number, bits: Number) -> Number:
    """From one level to the next where the largest magnitude of a group is the last of
    2**(bits − 1) − 1 levels on its side."""
    return largest / (2 ** (bits - 1) - 1)


@formula(whole=("bits",), least={"bits": 2})
def affine_step(span: Number, bits: Number) -> Number:
    """From one level to the next where a range (0 is always in it) has its ends on the first and
    the last of 2**bits levels."""
    return span / (2**bits - 1)


@formula()
def rounding_error(step: Number) -> Number:
    """Root mean square of what rounding to the nearest multiple of `step` takes from numbers that
    are spread evenly between levels: step / √12. Wide of the mark once most numbers lie within
    half a step of 0: these lose all they are."""
    return step / sqrt(12)


@formula(whole=("inputs", "group"))
def n_groups(inputs: Number, group: Number) -> Number:
    """Groups of a row of inputs; the last may be shorter."""
    return ceil_div(inputs, group)


@formula(zero_ok=("zero_bits",), whole=("outputs", "inputs", "bits", "group", "zero_bits"))
def integer_bytes(
    outputs: Number,
    inputs: Number,
    bits: Number,
    group: Number,
    scale_bytes: Number = 2,
    zero_bits: Number = 0,
) -> Number:
    """Bytes of a matrix [outputs, inputs] in integers with a scale, and a zero point of `zero_bits`
    (absmax: 0), for each group of a row's inputs. A group as wide as the row: a scale a channel."""
    groups = ceil_div(inputs, group)
    row = ceil_div(inputs * bits, 8) + groups * scale_bytes + ceil_div(groups * zero_bits, 8)
    return outputs * row


@formula(zero_ok=("zero_bits",), least={"group": 1})
def integer_bits_per_weight(
    bits: Number, group: Number, scale_bytes: Number = 2, zero_bits: Number = 0
) -> Number:
    """Bits of a weight with its share of scale and zero point, where groups divide the row and
    codes fill their bytes: bits + (8·scale_bytes + zero_bits) / group."""
    return bits + (8 * scale_bytes + zero_bits) / group


@dataclass(frozen=True)
class BlockFormat:
    """A format whose blocks carry their scales: weights in a block, bytes of a block, bytes beside
    the blocks that a tensor has once, and the format that takes its place where its blocks do not
    divide a row (none: such a matrix stays as it is)."""

    name: str
    weights: int
    block_bytes: int
    what: str
    tensor_bytes: int = 0
    otherwise: str | None = None

    @property
    def bits_per_weight(self) -> Fraction:
        """Bits of a weight, scales included, what a tensor has once left out."""
        return Fraction(8 * self.block_bytes, self.weights)

    def bytes(self, outputs: int, inputs: int) -> int:
        """Bytes of a matrix [outputs, inputs]. ValueError if blocks do not divide its rows."""
        if inputs < 1 or outputs < 1 or inputs % self.weights:
            raise ValueError(
                f"{self.name} has blocks of {self.weights} weights: [{outputs}, {inputs}] is not"
                " made of them."
            )
        return outputs * inputs // self.weights * self.block_bytes + self.tensor_bytes


BLOCK_FORMATS = {
    f.name: f
    for f in (
        BlockFormat("q8_0", 32, 34, "an fp16 scale, 32 int8"),
        BlockFormat("q5_0", 32, 22, "an fp16 scale, 32 codes of 5 bits, the fifth ones apart"),
        BlockFormat("q4_0", 32, 18, "an fp16 scale, 32 codes of 4 bits"),
        BlockFormat(
            "q4_k", 256, 144,
            "an fp16 scale of scales and one of minima; 8 of each, 6 bits; 256 codes of 4 bits",
            otherwise="q5_0",
        ),
        BlockFormat(
            "q6_k", 256, 210,
            "256 codes of 6 bits, lower 4 and upper 2 apart; 16 int8 scales; their fp16 scale",
            otherwise="q8_0",
        ),
        BlockFormat("mxfp4", 32, 17, "an e8m0 power of two, 32 e2m1"),
        BlockFormat("mxfp8", 32, 33, "an e8m0 power of two, 32 e4m3"),
        BlockFormat("nvfp4", 16, 9, "an e4m3 scale, 16 e2m1; an fp32 scale a tensor", 4),
    )
}  # fmt: skip


def format_of_rows(name: str, inputs: int) -> str | None:
    """The format of BLOCK_FORMATS that rows of so many inputs get where `name` is asked for: it, or
    what takes its place, as in llama.cpp (q5_0 for q4_k, q8_0 for q6_k); None if blocks of neither
    divide a row. ValueError for an unknown name, and for rows without inputs."""
    if name not in BLOCK_FORMATS or inputs < 1:
        raise ValueError(
            f"Rows of {inputs} inputs in {name!r}: inputs must be 1 or more, the format one of"
            f" {', '.join(BLOCK_FORMATS)}."
        )
    found: str | None = name
    while found is not None and inputs % BLOCK_FORMATS[found].weights:
        found = BLOCK_FORMATS[found].otherwise
    return found


@formula(whole=("n", "block", "outer"))
def normal_float_bytes(
    n: Number, block: Number = 64, outer: Number = 256, double: bool = True
) -> Number:
    """Bytes of n weights in NF4: 4 bits a weight, and for each block of 64 an fp32 maximum; with
    double quantization 8 bits for it, an fp32 scale for each 256 of them, and their fp32 mean."""
    blocks = ceil_div(n, block)
    beside = blocks + 4 * ceil_div(blocks, outer) + 4 if double else 4 * blocks
    return ceil_div(n, 2) + beside


@formula(whole=("outputs", "inputs", "rank"))
def adapter_params(outputs: Number, inputs: Number, rank: Number) -> Number:
    """Numbers of a low-rank adapter beside a matrix [outputs, inputs]: [rank, inputs] and
    [outputs, rank] (LoRA)."""
    return rank * (outputs + inputs)


@formula()
def weights_step_s(
    B: Number,
    n_params: Number,
    bits_per_weight: Number,
    bytes_per_s: Number,
    flops_per_s: Number,
) -> Number:
    """Seconds of the weights' products of a step for B tokens, if the kernel reads codes at full
    bandwidth, widens them for nothing, and reading hides behind arithmetic: max(bytes / W,
    FLOPs / C)."""
    read_s = n_params * bits_per_weight / 8 / bytes_per_s
    return maximum(read_s, 2 * B * n_params / flops_per_s)


@formula()
def tokens_where_it_stops_paying(
    bits_per_weight: Number, flops_per_s: Number, bytes_per_s: Number
) -> Number:
    """Tokens per step from which fewer bits save no time: arithmetic, which still runs in
    `flops_per_s`, takes as long as reading. B = bits·C / (16·W); half the bits, half the batch."""
    return bits_per_weight * flops_per_s / (16 * bytes_per_s)


@formula()
def quantization_speedup(
    B: Number,
    bits_before: Number,
    bits_after: Number,
    bytes_per_s: Number,
    flops_per_s: Number,
) -> Number:
    """How many times faster the weights' products of a step become, arithmetic as before: the ratio
    of bits for few tokens, 1 for many (prefill)."""
    before = maximum(bits_before / (8 * bytes_per_s), 2 * B / flops_per_s)
    after = maximum(bits_after / (8 * bytes_per_s), 2 * B / flops_per_s)
    return before / after
