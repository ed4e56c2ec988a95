"""A layer's channels going one after the other, and what the loss says to it: for drawings."""

from collections.abc import Sequence
from typing import Any

import torch

from twophase.models.pruning.importance import loss_without
from twophase.models.pruning.silence import silenced
from twophase.models.transformer import Transformer


def channels_going(
    model: Transformer,
    tokens: torch.Tensor,
    layer: int,
    order: Sequence[int],
    counts: Sequence[int],
) -> list[dict[str, Any]]:
    """An event for each of `counts`: so many channels of the layer, the first of `order`, are gone,
    and the loss on tokens, int64 [B, T + 1], is so many nats per token."""
    log = []
    for n in counts:
        gone = list(order[:n])
        with silenced(model, channels={layer: gone}):
            loss = loss_without(model, tokens)
        log.append({"event": "cut", "layer": layer, "gone": gone, "loss": loss})
    return log
