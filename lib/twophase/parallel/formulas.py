"""What the ranks of each layout send in one pass of a model, by `theory.messages`: what a trace of
that pass must come to, to the byte, where the ranks divide everything.

Beside what any such layout sends (`theory.sharded_step`) there is what ours do so that every rank
has the logits of all sequences.
"""

from __future__ import annotations

from collections.abc import Callable

from twophase.models.config import Config
from twophase.parallel.combined import group_size
from twophase.parallel.stationary import best_x
from twophase.theory import messages
from twophase.theory.messages import Collective, Messages

BYTES_PER_NUMBER = 4  # the course's checkpoints run in fp32

Formula = Callable[[Config, int, int, int], Messages]


def tensor(c: Config, B: int, T: int, n: int) -> Messages:
    """Two sums a layer, the embedding's, and logits."""
    once = messages.tensor_part(B * T, c.D, (n,), BYTES_PER_NUMBER)
    return messages.repeated(once + once, c.L) + _vocabulary(c, B, T, n)


def batch_split(c: Config, B: int, T: int, n: int) -> Messages:
    """`tensor`, and two exchanges a layer."""
    cut = messages.batch_split_attention(B * T, c.N, c.K, c.H, (n,), BYTES_PER_NUMBER)
    return tensor(c, B, T, n) + messages.repeated(cut, c.L)


def length_split(c: Config, B: int, T: int, n: int) -> Messages:
    """`tensor`, and a gathering and an exchange a layer."""
    cut = messages.length_split_attention(B * T, c.N, c.K, c.H, (n,), BYTES_PER_NUMBER, 4)
    return tensor(c, B, T, n) + messages.repeated(cut, c.L)


def sequence(c: Config, B: int, T: int, n: int) -> Messages:
    """In prefill a gathering a layer, and the logits of the last tokens; in decode nothing."""
    if T == 1:
        return ()
    cut = messages.sequence_attention(B * T, c.K, c.H, (n,), BYTES_PER_NUMBER)
    return messages.repeated(cut, c.L) + messages.logits_part(B, c.V, (n,), summed=True)


def pipeline(c: Config, B: int, T: int, n: int) -> Messages:
    """The stream to the next stage, from all but the last, and logits."""
    stream = B * T * c.D * BYTES_PER_NUMBER
    send = Collective("send", stream * (n - 1) / n, (n,), "to the next stage, a stage's mean")
    return (send, *messages.logits_part(B, c.V, (n,)))


def replicas(c: Config, B: int, T: int, n: int) -> Messages:
    """Logits alone."""
    return messages.logits_part(B, c.V, (n,))


def tensor_replicas(c: Config, B: int, T: int, n: int) -> Messages:
    """`tensor` of a group's sequences inside each group, and the logits of all."""
    Y = group_size(n)
    return tensor(c, B // (n // Y), T, Y) + messages.logits_part(B, c.V, (n // Y,))


def tensor_pipeline(c: Config, B: int, T: int, n: int) -> Messages:
    """Sums in each group, its stream and the logits once for each of its ranks."""
    Y = group_size(n)
    X = n // Y
    a_stages_mean = tuple(
        Collective(m.kind, m.array_bytes / X, m.sides, m.what, m.times) for m in tensor(c, B, T, Y)
    )
    return a_stages_mean + pipeline(c, B, T, X)


def stationary(c: Config, B: int, T: int, n: int) -> Messages:
    """Eight collectives a layer, each over some of the ranks; norms of a stream in pieces."""
    X = best_x(c, n)
    cut = ((X,), (n // X,), BYTES_PER_NUMBER)
    qkv, out = (c.N + 2 * c.K) * c.H, c.N * c.H
    attention = messages.weight_stationary_part(B * T, c.D, qkv, out, *cut)
    wide_in = (2 if c.gated_mlp else 1) * c.F
    mlp = messages.weight_stationary_part(B * T, c.D, wide_in, c.F, *cut)
    rest = messages.resting_stream_part(B * T, B, c.D, 2 * c.L + 1, (n,), BYTES_PER_NUMBER)
    return messages.repeated(attention + mlp, c.L) + rest + _vocabulary(c, B, T, n)


def _vocabulary(c: Config, B: int, T: int, n: int) -> Messages:
    return messages.vocabulary_part(B * T, B, c.D, c.V, (n,), BYTES_PER_NUMBER, 4)


# of a pass of B sequences, T tokens each, on n ranks; experts send what a router chose
FORMULAS: dict[str, Formula] = {
    "tensor": tensor,
    "batch-split": batch_split,
    "length-split": length_split,
    "sequence": sequence,
    "stationary": stationary,
    "pipeline": pipeline,
    "replicas": replicas,
    "tensor-pipeline": tensor_pipeline,
    "tensor-replicas": tensor_replicas,
}


def sent_bytes(layout: str, c: Config, B: int, T: int, n: int) -> float:
    """Bytes that all ranks of a layout send in such a pass."""
    return float(n * messages.sent_bytes(FORMULAS[layout](c, B, T, n)))
