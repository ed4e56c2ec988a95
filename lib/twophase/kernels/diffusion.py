"""Masked diffusion: text that is made by unmasking, several tokens per forward pass (Austin et al., 2021, arXiv
2107.03006; MDLM: Sahoo et al., 2024, arXiv 2406.07524; LLaDA: Nie et al., 2025, arXiv 2502.09992).

At time t in (0, 1] every token is hidden with probability t, independently: nothing at 0, everything at 1. A network
that reads both ways sees what is left and gives, for each hidden position, a law of the token there. The mask is one
more token, the last of the vocabulary; the laws leave it out.
"""

import torch
from torch.nn import functional

EPSILON = 1e-3  # the smallest t of training and bounds: at t = 0 there is nothing to predict, and 1/t explodes


def mask_tokens(
    tokens: torch.Tensor, t: torch.Tensor, mask_token: int, generator: torch.Generator | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hide each of `tokens` [B, T] with the probability t [B] of its sequence.

    Returns what the network sees, int64 [B, T], and where tokens are hidden, bool [B, T].
    Raises ValueError if t is outside [0, 1].
    """
    if t.shape != tokens.shape[:1] or bool(((t < 0) | (t > 1)).any()):
        raise ValueError(f"t needs a probability for each of {len(tokens)} sequences; got {t.tolist()}.")
    device = tokens.device if generator is None else generator.device
    chance = torch.rand(tokens.shape, generator=generator, device=device).to(tokens.device)  # [B, T]
    masked = chance < t[:, None]  # [B, T]
    return torch.where(masked, mask_token, tokens), masked


def stratified_times(B: int, generator: torch.Generator | None = None, epsilon: float = EPSILON) -> torch.Tensor:
    """B times in (epsilon, 1], one in each of B equal parts of that range, all shifted by one random number: fp32 [B].

    Each is uniform alone; together they cover the range evenly, so that a batch's mean loss varies less than with
    independent times (MDLM, section 3.4 and appendix; Kingma et al., 2021, arXiv 2107.00630, appendix I.1).
    """
    device = None if generator is None else generator.device
    shift = torch.rand(1, generator=generator, device=device)  # [1], in [0, 1)
    share = 1 - (torch.arange(B, device=device) + shift) / B  # [B], in (0, 1]
    return epsilon + (1 - epsilon) * share


def diffusion_loss(logits: torch.Tensor, tokens: torch.Tensor, masked: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """One draw of the negative ELBO, in nats per token, for each sequence: [B].

    The sum over hidden tokens of −log of their probability, times 1/t, over T (MDLM, eq. 10 and 11, for the schedule
    alpha_t = 1 − t; LLaDA, eq. 3). logits: [B, T, V + 1], whose last column, the mask itself, is left out.
    """
    nats = functional.cross_entropy(logits[..., :-1].float().transpose(1, 2), tokens, reduction="none")  # [B, T]
    return torch.where(masked, nats, 0.0).mean(-1) / t  # [B]
