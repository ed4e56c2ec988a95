"""A masked-diffusion language model: our transformer, reading both ways (`causal=False`), with one more token, the mask."""

import torch

from twophase.kernels.diffusion import diffusion_loss, mask_tokens, stratified_times
from twophase.models.transformer import Transformer


def training_loss(model: Transformer, tokens: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """The loss of one step: a draw of the negative ELBO in nats per token, mean over the batch; a scalar.

    tokens: int64 [B, T]. Times and masks are drawn from `generator`, on its own device.
    """
    t = stratified_times(len(tokens), generator).to(tokens.device)  # [B]
    seen, masked = mask_tokens(tokens, t, model.config.V - 1, generator)  # [B, T] each
    return diffusion_loss(model(seen), tokens, masked, t).mean()
