"""Where a token enters the stream, and where it leaves it."""

from typing import Any

import numpy as np
import torch
from torch import nn

from twophase.kernels.compiled.linear import norm_project
from twophase.kernels.span import Span
from twophase.models.compiled.halves import choose
from twophase.models.compiled.token import Token
from twophase.models.compiled.weights import biases, check_kind, matrix, norm
from twophase.models.transformer import Transformer


class Embedding:
    """The stream's start: a row of the table, in fp32."""

    def __init__(self, model: Transformer, parallel: bool) -> None:
        self.model = model
        self.tables: list[Any] = [model.embed_tokens]
        if model.config.learned_positions:
            self.tables.append(model.embed_positions)
        for table in self.tables:
            check_kind(table, nn.Embedding)
        weight = model.embed_tokens.weight
        # rounded as the plain model rounds it
        self.scale = float(torch.tensor(model.config.embedding_scale, dtype=weight.dtype))

    def __call__(self, tokens: torch.Tensor, span: Span) -> np.ndarray:
        """fp32 [D] of one token [1, 1]. ValueError for one that is none."""
        token, V = int(tokens), self.model.config.V
        if not 0 <= token < V:
            raise ValueError(f"a token is outside the vocabulary: 0 to {V - 1}.")
        x = self.tables[0].weight[token].float() * self.scale  # [D]
        if len(self.tables) > 1:
            x = x + self.tables[1].weight[span.starts[0]].float()
        return x.numpy()  # type: ignore[no-any-return]


class PlainEmbedding:
    """The same in torch, whatever stands there."""

    def __init__(self, model: Transformer, parallel: bool) -> None:
        self.model = model

    def __call__(self, tokens: torch.Tensor, span: Span) -> np.ndarray:
        """fp32 [D] of one token [1, 1]. ValueError for one that is none."""
        return self.model.embed(tokens, span.positions).float().view(-1).numpy().copy()


class Head:
    """The last norm and the output matrix."""

    def __init__(self, model: Transformer, parallel: bool) -> None:
        c = self.config = model.config
        self.norm = norm(model.norm)
        self.w, self.bias = matrix(model.lm_head, c.V, c.D), biases(model.lm_head)
        self.h = np.empty(c.D, np.float32)
        self.project = choose(norm_project, parallel)

    def __call__(self, token: Token) -> torch.Tensor:
        """Logits fp32 [1, V]."""
        n, cap = self.norm, self.config.logit_cap
        logits, none = np.empty(self.config.V, np.float32), self.w[:0]
        self.project(
            token.x, n.scale, n.shift, n.eps, self.w, none, none, self.bias, self.h, logits
        )
        found = torch.from_numpy(logits)[None]
        return found if cap is None else cap * torch.tanh(found / cap)


class PlainHead:
    """The same in torch, whatever stands there."""

    def __init__(self, model: Transformer, parallel: bool) -> None:
        self.model = model

    def __call__(self, token: Token) -> torch.Tensor:
        """Logits fp32 [1, V]."""
        return self.model.logits(self.model.norm(token.tensor), -1).float()
