"""A tensor-parallel Transformer: every rank runs all layers, each with its own heads and MLP
columns, and what they add to the stream is summed over the ranks, twice a layer (Megatron-LM,
Shoeybi et al., 2019, arXiv 1909.08053, section 3).

It is a Transformer of the rank's own sizes. Hooks sum what attention and MLP give; the embedding
knows a rank's rows of the vocabulary and is summed, too; logits are gathered.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from twophase.kernels.collectives import Comm
from twophase.measure.collectives import Tracer
from twophase.models.blank import WithoutInitialization, blank
from twophase.models.linear import Linear
from twophase.models.transformer import Transformer
from twophase.parallel.shares import Shares, sizes
from twophase.parallel.weights import Source, fill


def tensor_parallel(
    source: Source,
    comm: Comm,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> Transformer:
    """This rank's part of a model, ready to run on all ranks together; only its own boxes of the
    weights are read. Logits are the same on every rank. ValueError as in `Shares`."""
    model = tensor_part(source, comm, dtype, device)
    mark_places(model, comm)
    return model


def tensor_part(
    source: Source, comm: Comm, dtype: torch.dtype | None, device: torch.device | str
) -> Transformer:
    """The same, of which a traced Comm does not learn where its calls are."""
    shares = Shares(source.config, comm.rank, comm.size)
    model = blank(shares.part())
    split_vocabulary(model, shares, comm)
    fill(model, source, shares.box, dtype, device)
    if model.config.tied:
        model.lm_head.weight = model.embed_tokens.weight
    for layer in model.layers:
        for part in (layer.get_submodule("self_attn"), layer.get_submodule("mlp")):
            part.register_forward_hook(lambda module, args, out: comm.all_reduce(out))
    return model


def split_vocabulary(model: Transformer, shares: Shares, comm: Comm) -> None:
    """Put a blank rank's rows of the embedding, and its logits, in the place of the whole."""
    D, own = model.config.D, shares.vocabulary
    with torch.device("meta"), WithoutInitialization():
        model.embed_tokens = VocabularyRows(own, model.config.V, D, comm)
        model.lm_head = VocabularyColumns(own, D, sizes(model.config.V, comm.size), comm)


class VocabularyRows(nn.Embedding):
    """The embedding of some tokens. Others are zero here, and come from their rank in a sum."""

    def __init__(self, own: range, V: int, D: int, comm: Comm) -> None:
        super().__init__(len(own), D)
        self.own, self.V, self.comm = own, V, comm

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens: [B, T] → [B, T, D]. IndexError for a token that no rank has."""
        if tokens.device.type == "cpu" and not 0 <= int(tokens.min()) <= int(tokens.max()) < self.V:
            raise IndexError("a token is outside the vocabulary")
        mine = (tokens >= self.own.start) & (tokens < self.own.stop)  # [B, T]
        rows = functional.embedding((tokens - self.own.start) * mine, self.weight)  # [B, T, D]
        return self.comm.all_reduce(rows * mine[..., None])


class VocabularyColumns(Linear):
    """Logits of some tokens, gathered from all ranks."""

    def __init__(self, own: range, D: int, counts: list[int], comm: Comm) -> None:
        super().__init__(D, len(own))
        self.counts, self.comm = counts, comm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., D] → [..., V]."""
        return self.comm.all_gather(super().forward(x), -1, self.counts)


def mark_places(model: Transformer, comm: Comm) -> None:
    """Have a traced Comm know step, phase and layer of its calls."""
    if not isinstance(comm, Tracer):
        return
    step = 0

    def begin(module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        nonlocal step
        phase = "prefill" if args[0].shape[1] > 1 else "decode"
        comm.at(step=step, phase=phase, layer=None)
        step += 1

    def at(layer: int | None) -> Callable[..., None]:
        return lambda module, args, out=None: comm.at(layer=layer)

    model.embed_tokens.register_forward_pre_hook(begin)
    for number, block in enumerate(model.layers):
        block.register_forward_pre_hook(at(number))
    model.layers[-1].register_forward_hook(at(None))
