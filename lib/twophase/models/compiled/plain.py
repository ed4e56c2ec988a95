"""Parts of a model that run in plain torch, since they have no loops."""

from dataclasses import dataclass
from typing import Any

from twophase.models.compiled.token import Token
from twophase.models.transformer import Block


@dataclass(frozen=True)
class PlainHalf:
    """Half a block in torch: a norm, a layer, and where there are four norms (Gemma) one more.

    `mixes`: whether the layer takes information from other tokens.
    """

    before: Any
    layer: Any
    after: Any
    mixes: bool

    def __call__(self, token: Token) -> None:
        """Add to the stream what this half makes of it."""
        x = self.before(token.tensor)
        x = self.layer(x, token.step) if self.mixes else self.layer(x)
        token.x += (x if self.after is None else self.after(x)).float().view(token.x.shape).numpy()


@dataclass(frozen=True)
class PlainBlock:
    """A whole block in torch: one that is none of ours, or that somebody listens to."""

    block: Any

    def __call__(self, token: Token) -> None:
        """Replace the stream by what comes out."""
        token.x[:] = self.block(token.tensor, token.step).float().view(token.x.shape).numpy()


def halves_of(block: Block) -> tuple[PlainHalf, PlainHalf]:
    """Attention (or what stands for it) and MLP, each with its norms."""
    b: Any = block
    if b.four_norms:
        return (
            PlainHalf(b.input_layernorm, b.self_attn, b.post_attention_layernorm, mixes=True),
            PlainHalf(
                b.pre_feedforward_layernorm, b.mlp, b.post_feedforward_layernorm, mixes=False
            ),
        )
    return (
        PlainHalf(b.input_layernorm, b.self_attn, None, mixes=True),
        PlainHalf(b.post_attention_layernorm, b.mlp, None, mixes=False),
    )
