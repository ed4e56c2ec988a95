"""One layer that drafts from the target's own stream: EAGLE's head (Li et al. 2024, arXiv
2401.15077) and the module of DeepSeek-V3's multi-token prediction (2024, arXiv 2412.19437).

Both read pairs: a token, and the target's stream at the place *before* it, which says what was
likely there while the token says what was drawn. One matrix joins the two, one layer of attention
looks back over the pairs, the target's own output matrix makes logits. For a second token the
layer's output stands in for a stream that the target has not made yet.

They differ in two things here: multi-token prediction normalizes both halves of a pair and what
comes out; EAGLE does not, and is trained to say the target's next stream as well. DeepSeek trains
its module along with the model; here the target stands still, and one module drafts every place.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import nn

from twophase.kernels.rope import rope_tables
from twophase.kernels.sampling import Choose
from twophase.kernels.span import Span
from twophase.models.cache import Cache
from twophase.models.config import Config
from twophase.models.linear import Linear
from twophase.models.norm import RMSNorm
from twophase.models.speculative_decoding.drafts import Draft, Text, check_vocabulary
from twophase.models.speculative_decoding.law import Law
from twophase.models.step import Step
from twophase.models.stores import new_cache
from twophase.models.transformer import Block, Transformer


class FeatureHead(nn.Module):
    """A layer over pairs of a token and the target's stream before it."""

    def __init__(self, config: Config, normalized: bool) -> None:
        """`config`: of one layer of attention, as wide as the target's stream. `normalized`: as in
        multi-token prediction."""
        super().__init__()
        self.config, self.normalized = config, normalized
        self.join = Linear(2 * config.D, config.D)
        self.layers = nn.ModuleList([Block(config, 0)])
        if normalized:
            self.token_norm, self.stream_norm, self.norm = (
                RMSNorm(config.D, config) for _ in range(3)
            )

    def new_cache(self, B: int, S_max: int) -> Cache:
        """An empty cache for B texts of up to S_max pairs."""
        weight = self.join.weight
        return new_cache(self.config, B, S_max, 0, weight.dtype, weight.device)

    def forward(
        self,
        embedded: torch.Tensor,
        stream: torch.Tensor,
        cache: Cache | None = None,
        n_new: Sequence[int] | None = None,
    ) -> torch.Tensor:
        """Embedded tokens and the stream before each, [B, T, D] both → the stream after each that
        the target is expected to have, [B, T, D]. With a cache they continue what it holds."""
        B, T, _ = embedded.shape
        span = cache.begin(B, T, n_new) if cache else Span.of(B, T, device=embedded.device)
        c = self.config
        tables = rope_tables(span.positions, c.turned, c.rope_theta, c.rope_scaling)
        step = Step(span, {"gqa": tables}, cache, True)
        if self.normalized:
            embedded, stream = self.token_norm(embedded), self.stream_norm(stream)
        x = self.join(torch.cat([embedded, stream], -1))  # [B, T, 2·D] → [B, T, D]
        x = self.layers[0](x, step)
        if self.normalized:
            x = self.norm(x)
        if cache is not None:
            cache.commit()
        return x  # type: ignore[no-any-return]


def head_config(target: Config, F: int) -> Config:
    """The one layer of a head for this target: its widths, grouped attention, an MLP of width F."""
    kept = {"D", "N", "K", "H", "V", "rope_theta", "rope_pairing", "norm_eps", "context"}
    own: dict[str, Any] = {
        f.name: getattr(target, f.name) for f in fields(target) if f.name in kept
    }
    return Config(**own, L=1, F=F, attention="gqa")


class FeatureDrafter:
    """A `FeatureHead` drafts one token after the other, over a cache of its own, and through the
    target's embedding and output matrix."""

    def __init__(self, head: FeatureHead, target: Transformer, name: str = "eagle") -> None:
        if head.config.D != target.config.D:
            raise ValueError(
                f"the head reads streams of {head.config.D} numbers, the target's have"
                f" {target.config.D}: take the head that was trained with this target."
            )
        self.head, self.target, self.name = head, target, name

    def begin(self, V: int, B: int, S_max: int, gamma: int) -> int:
        """As `Drafter` says."""
        check_vocabulary(V, self.head.config.V)
        self.cache = self.head.new_cache(B, S_max + gamma)
        self.read = [0] * B  # pairs in the cache whose stream is the target's
        width = self.head.config.D
        weight = self.head.join.weight
        self.unread = [weight.new_zeros(0, width) for _ in range(B)]  # stream not read yet, [n, D]
        return gamma

    def see(self, features: Sequence[torch.Tensor | None]) -> None:
        """As `FeatureReader` says."""
        for b, stream in enumerate(features):
            if stream is not None:
                self.unread[b] = torch.cat([self.unread[b], stream])

    def propose(
        self, texts: Sequence[Text], counts: Sequence[int], law: Law, dice: Callable[[int], Choose]
    ) -> list[Draft]:
        """As `Drafter` says. Pairs with a guessed stream are forgotten first."""
        self.cache.truncate(self.read)
        tokens: list[list[int]] = [[] for _ in texts]
        probs: list[list[torch.Tensor]] = [[] for _ in texts]
        pairs: dict[int, tuple[list[int], torch.Tensor]] = {}
        for b, text in enumerate(texts):
            if text is not None and counts[b] > 0:
                pairs[b] = list(text[self.read[b] + 1 :]), self.unread[b]
                self.read[b] += len(self.unread[b])
                self.unread[b] = self.unread[b][:0]
        while pairs:
            expected = self._expect(len(texts), pairs)  # b -> [D]
            logits = self.target.logits(torch.stack([*expected.values()])[:, None], -1)  # [n, V]
            for own, b in zip(logits, list(pairs), strict=True):
                if law.greedy:
                    tokens[b].append(int(own.argmax()))
                else:
                    probs[b].append(law.probs(own))  # [V]
                    tokens[b].append(dice(b)(probs[b][-1]))
            pairs = {
                b: ([tokens[b][-1]], stream[None])
                for b, stream in expected.items()
                if len(tokens[b]) < counts[b]
            }
        return [
            Draft(own, torch.stack(laws) if laws else None)
            for own, laws in zip(tokens, probs, strict=True)
        ]

    def _expect(
        self, B: int, pairs: dict[int, tuple[list[int], torch.Tensor]]
    ) -> dict[int, torch.Tensor]:
        """Read the pairs of each text; the stream that is expected behind the last, [D] each."""
        T, weight = max(len(tokens) for tokens, _ in pairs.values()), self.head.join.weight
        block = torch.zeros(B, T, dtype=torch.int64, device=weight.device)
        stream = weight.new_zeros(B, T, self.head.config.D)
        counts = [0] * B
        for b, (tokens, own) in pairs.items():
            counts[b] = len(tokens)
            block[b, : counts[b]] = torch.tensor(tokens, device=weight.device)
            stream[b, : counts[b]] = own
        out = self.head(self.target.embed_tokens(block), stream, self.cache, counts)
        return {b: out[b, counts[b] - 1] for b in pairs}
