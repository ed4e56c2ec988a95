"""What training makes small: the loss of a batch."""

import torch
from torch.nn import functional

from twophase.models import diffusion
from twophase.models.mixture_of_experts import MixtureOfExperts
from twophase.models.transformer import Transformer


def training_loss(
    model: Transformer,
    tokens: torch.Tensor,
    seed: int,
    hidden: diffusion.Hidden | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Nats per byte of the targets in tokens, int64 [B, T + 1], and the experts' load-balance loss
    (0 without any).

    A model that reads both ways learns to fill in masked bytes instead; `seed` draws what is
    masked, unless that is drawn already and given as `hidden`.
    """
    if not model.config.causal:
        if hidden is not None:
            loss = diffusion.loss_of_hidden(model, tokens[:, 1:], hidden)
            return loss, loss.new_zeros(())
        generator = torch.Generator(tokens.device).manual_seed(seed)
        return diffusion.training_loss(model, tokens[:, 1:], generator), torch.zeros(())
    logits = model(tokens[:, :-1])  # [B, T, V]
    loss = functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
    aux = [
        m.aux_loss
        for m in model.modules()
        if isinstance(m, MixtureOfExperts) and m.aux_loss is not None
    ]
    return loss, torch.stack(aux).mean() if aux else torch.zeros(())


def compiles() -> bool:
    """Whether torch can compile here: it needs a C++ compiler and Python's headers."""
    try:
        torch.compile(lambda x: x + 1)(torch.zeros(2))
    except Exception:  # whatever is missing, the run goes on without
        return False
    return True
