"""What the chips of a layout send each other in one pass of a transformer: collectives, in order,
each with its size, from which bytes and times follow.

n_tokens is B T: every token of a pass takes part. All of a chip's part divides evenly.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from twophase.theory import collectives
from twophase.theory._domain import COUNT, Domain, Number, as_number, is_symbolic
from twophase.theory.links import Link

_SIDE = Domain(least=1.0)


@dataclass(frozen=True)
class Collective:
    """One message of all chips of a group, `times` over.

    array_bytes: bytes of the whole array that is gathered, or of what one chip brings to a sum; in
    an "all_to_all" of what one chip holds, in a "send" of the message. sides: the chips of the
    group along each axis of the mesh that it uses. between: it goes from machine to machine.
    ValueError for bytes or times below 0, and for sides of less than one chip.
    """

    kind: str
    array_bytes: Number
    sides: tuple[int, ...]
    what: str
    times: int = 1
    between: bool = False

    def __post_init__(self) -> None:
        array_bytes = as_number("array_bytes", self.array_bytes)  # a product: of any size
        negative = False if is_symbolic(array_bytes) else array_bytes < 0
        if negative.any() if hasattr(negative, "any") else negative:
            raise ValueError(f"array_bytes must be zero or more, but it is {array_bytes}.")
        COUNT.check("times", self.times)
        if not isinstance(self.sides, tuple):
            raise ValueError(f"sides is a tuple of chips along each axis, not {self.sides!r}.")
        for side in self.sides:
            _SIDE.check("a side of a mesh", side)

    @property
    def n_chips(self) -> int:
        """Chips that take part."""
        return prod(self.sides)

    @property
    def sent_bytes(self) -> Number:
        """Bytes that each chip sends, all times together. A "send" is one chip's."""
        if self.kind == "send":
            return self.times * self.array_bytes
        sent = {
            "all_reduce": collectives.all_reduce_sent_bytes,
            "all_to_all": collectives.all_to_all_sent_bytes,
        }.get(self.kind, collectives.all_gather_sent_bytes)
        return self.times * sent(self.array_bytes, self.n_chips)

    def time_s(self, link: Link) -> float:
        """Seconds on these links, all times one after the other."""
        return self.times * link.time_s(self.kind, self.array_bytes, self.sides)


Messages = tuple[Collective, ...]


def sent_bytes(messages: Sequence[Collective]) -> Number:
    """Bytes that each chip sends in all of them."""
    return sum(m.sent_bytes for m in messages)


def time_s(messages: Sequence[Collective], link: Link, between: Link | None = None) -> float:
    """Seconds of all of them, one after the other; those from machine to machine over `between`,
    if that is given."""
    return sum(m.time_s(between if m.between and between else link) for m in messages)


def tensor_part(
    n_tokens: Number, D: Number, sides: tuple[int, ...], bytes_per_activation: Number = 2
) -> Messages:
    """An MLP with its columns cut, or attention with its heads cut: one sum of the results."""
    return (Collective("all_reduce", n_tokens * D * bytes_per_activation, sides, "result"),)


def batch_split_attention(
    B: Number,
    N: Number,
    K: Number,
    H: Number,
    sides: tuple[int, ...],
    bytes_per_activation: Number = 2,
) -> Messages:
    """Decode attention on a cache cut by sequence: there, and back. The sum of the output
    projection is `tensor_part`'s."""
    row = B * H * bytes_per_activation / prod(sides)
    return (
        Collective("all_to_all", (N + 2 * K) * row, sides, "queries, keys, values"),
        Collective("all_to_all", N * row, sides, "outputs of attention"),
    )


def length_split_attention(
    B: Number,
    N: Number,
    K: Number,
    H: Number,
    sides: tuple[int, ...],
    bytes_per_activation: Number = 2,
    bytes_per_partial: Number = 4,
) -> Messages:
    """Decode attention on a cache cut by position: queries and the new position to all; partial
    outputs with maximum and sum to whom they belong."""
    asked = B * (N + 2 * K) * H * bytes_per_activation
    partial = B * N * (H + 2) * bytes_per_partial
    return (
        Collective("all_gather", asked, sides, "queries, keys, values"),
        Collective("all_to_all", partial, sides, "partial outputs"),
    )


def gathered_part(
    n_params: Number, sides: tuple[int, ...], bytes_per_param: Number = 2
) -> Messages:
    """Weights that lie in pieces, gathered before they are used."""
    return (Collective("all_gather", n_params * bytes_per_param, sides, "weights"),)


def sequence_attention(
    n_tokens: Number, K: Number, H: Number, sides: tuple[int, ...], bytes_per_kv: Number = 2
) -> Messages:
    """Prefill attention with positions cut: keys and values to all."""
    return (Collective("all_gather", 2 * n_tokens * K * H * bytes_per_kv, sides, "keys, values"),)


def weight_stationary_part(
    n_tokens: Number,
    D: Number,
    wide_in: Number,
    wide_out: Number,
    x_sides: tuple[int, ...],
    yz_sides: tuple[int, ...],
    bytes_per_activation: Number = 2,
) -> Messages:
    """Two matrices cut both ways, D over X, what is between over YZ: an MLP (wide_in F, or 2 F if
    it is gated, wide_out F), or attention with the batch over X and heads over YZ in between
    (wide_in (N + 2 K) H, wide_out N H)."""
    outer = n_tokens * D * bytes_per_activation / prod(x_sides)
    inner = n_tokens * bytes_per_activation / prod(yz_sides)
    return (
        Collective("all_gather", outer, yz_sides, "input"),
        Collective("reduce_scatter", wide_in * inner, x_sides, "products"),
        Collective("all_gather", wide_out * inner, x_sides, "activations"),
        Collective("reduce_scatter", outer, yz_sides, "result"),
    )


def expert_part(
    n_tokens: Number, D: Number, k: int, sides: tuple[int, ...], bytes_per_activation: Number = 2,
    bytes_per_dispatched: Number | None = None,
) -> Messages:  # fmt: skip
    """Whole experts on each chip, n_tokens / n tokens on each: a token travels once to each of its
    k experts, and back, chosen evenly; out in a format of its own, if that is given."""
    held = n_tokens / prod(sides) * k * D
    out = bytes_per_activation if bytes_per_dispatched is None else bytes_per_dispatched
    return (
        Collective("all_to_all", held * out, sides, "tokens to experts"),
        Collective("all_to_all", held * bytes_per_activation, sides, "results of experts"),
    )


def vocabulary_part(
    n_tokens: Number,
    n_rows: Number,
    D: Number,
    V: Number,
    sides: tuple[int, ...],
    bytes_per_activation: Number = 2,
    bytes_per_logit: Number = 4,
) -> Messages:
    """Rows of the embedding and of the head cut: a sum of embedded tokens, and the logits of n_rows
    tokens gathered."""
    return (
        Collective("all_reduce", n_tokens * D * bytes_per_activation, sides, "embedded tokens"),
        Collective("all_gather", n_rows * V * bytes_per_logit, sides, "logits"),
    )


def logits_part(
    n_rows: Number,
    V: Number,
    sides: tuple[int, ...],
    summed: bool = False,
    bytes_per_logit: Number = 4,
) -> Messages:
    """Logits of n_rows tokens that single chips have, to all: gathered in pieces or told by one
    chip, either of which sends n - 1 times their bytes; or `summed`, with zeros for what a chip
    lacks."""
    kind = "all_reduce" if summed else "all_gather"
    return (Collective(kind, n_rows * V * bytes_per_logit, sides, "logits"),)


def visits_part(E: Number, sides: tuple[int, ...], bytes_per_count: Number = 8) -> Messages:
    """How many tokens come to each expert, told before they travel."""
    return (Collective("all_to_all", E * bytes_per_count, sides, "visits of experts"),)


def resting_stream_part(
    n_tokens: Number,
    n_rows: Number,
    D: Number,
    n_norms: int,
    sides: tuple[int, ...],
    bytes_per_activation: Number = 2,
    bytes_per_square: Number = 4,
) -> Messages:
    """What a stream that rests in pieces needs besides its products: each norm's sum of squares of
    every token, and in the end the streams of n_rows tokens, whole, for the head."""
    return (
        Collective("all_reduce", n_tokens * bytes_per_square, sides, "squares", n_norms),
        Collective("all_gather", n_rows * D * bytes_per_activation, sides, "last streams"),
    )


def repeated(messages: Messages, times: int) -> Messages:
    """The same in each of so many layers."""
    return tuple(replace(m, times=times * m.times) for m in messages)
