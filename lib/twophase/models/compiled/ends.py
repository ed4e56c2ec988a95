"""Where a token enters the stream, and where it leaves it."""

import numpy as np
import torch
from torch import nn

from twophase.kernels.compiled.linear import scaled_row
from twophase.kernels.compiled.several import scaled_rows
from twophase.kernels.span import Span
from twophase.models.compiled.products import norm_projection
from twophase.models.compiled.token import Token, Workspace
from twophase.models.compiled.weights import check_kind, norm, stored
from twophase.models.transformer import Transformer


class Embedding:
    """The stream's start: a row of the table, in fp32."""

    def __init__(self, model: Transformer, work: Workspace) -> None:
        c = self.config = model.config
        check_kind(model.embed_tokens, nn.Embedding)
        self.table, self.positions = stored(model.embed_tokens.weight, c.V, c.D), None
        if c.learned_positions:
            check_kind(model.embed_positions, nn.Embedding)
            self.positions = stored(model.embed_positions.weight, c.learned_positions, c.D)
        # rounded as the plain model rounds it
        dtype = work.model.embed_tokens.weight.dtype
        scale = torch.tensor(c.embedding_scale, dtype=dtype, device="cpu")
        self.scale = np.float32(scale.item())

    def __call__(self, tokens: torch.Tensor, span: Span) -> np.ndarray:
        """fp32 [D] of one token [1, 1]. ValueError for one that is none."""
        token = self.number_of(tokens)
        x: np.ndarray = scaled_row(self.table, token, self.scale)  # [D]
        if self.positions is not None:
            x += scaled_row(self.positions, span.starts[0], np.float32(1))
        return x

    def several(self, tokens: torch.Tensor, span: Span) -> np.ndarray:
        """fp32 [T, D] of some tokens [1, T] of one sequence. ValueError for one that is none."""
        numbers, V = tokens[0].tolist(), self.config.V
        if not 0 <= min(numbers) <= max(numbers) < V:
            raise ValueError(f"a token is outside the vocabulary: 0 to {V - 1}.")
        x: np.ndarray = scaled_rows(self.table, np.array(numbers), self.scale)  # [T, D]
        if self.positions is not None:
            places = span.starts[0] + np.arange(len(x))
            x += scaled_rows(self.positions, places, np.float32(1))
        return x

    def number_of(self, tokens: torch.Tensor) -> int:
        """Of one token [1, 1]. ValueError for one that is none."""
        token, V = int(tokens.item()), self.config.V
        if not 0 <= token < V:
            raise ValueError(f"a token is outside the vocabulary: 0 to {V - 1}.")
        return token


class PlainEmbedding:
    """The same in torch, whatever stands there."""

    def __init__(self, model: Transformer, work: Workspace) -> None:
        self.model = model

    def __call__(self, tokens: torch.Tensor, span: Span) -> np.ndarray:
        """fp32 [D] of one token [1, 1]. ValueError for one that is none."""
        return self.model.embed(tokens, span.positions).float().view(-1).numpy().copy()


class Head:
    """The last norm and the output matrix."""

    def __init__(self, model: Transformer, work: Workspace) -> None:
        c, self.cap = model.config, model.config.logit_cap
        project = norm_projection(norm(model.norm), [model.lm_head], [c.V], work)
        self.V, self.project, self.given = c.V, project.project, project.given[:-1]
        self.loops = project.loops

    def __call__(self, token: Token) -> torch.Tensor:
        """Logits fp32 [1, V]."""
        logits = np.empty((1, self.V), np.float32)  # the caller's own
        self.project(token.x, *self.given, logits[0], token.workers)
        return self.capped(torch.from_numpy(logits))

    def capped(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits as the model gives them: bounded, where its config says so."""
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


class PlainHead:
    """The same in torch, whatever stands there."""

    def __init__(self, model: Transformer, work: Workspace) -> None:
        self.model = model

    def __call__(self, token: Token) -> torch.Tensor:
        """Logits fp32 [1, V]."""
        return self.model.logits(self.model.norm(token.tensor), -1).float()
