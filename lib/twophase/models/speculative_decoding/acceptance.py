"""How often a target would accept what a draft proposes."""

import torch

from twophase.kernels.span import whole
from twophase.models.speculative_decoding.drafts import check_vocabulary
from twophase.models.transformer import Transformer


@torch.inference_mode()
def sample_batch(
    model: Transformer, prompts: torch.Tensor, n_new: int, generator: torch.Generator
) -> torch.Tensor:
    """Continue each of B prompts, int64 [B, T], by n_new tokens drawn at temperature 1: int64 [B, T
    + n_new]. ValueError for a count that is no whole number of at least 0."""
    n_new = whole("the number of new tokens", n_new, 0)
    B, T = prompts.shape
    cache = model.new_cache(B, T + n_new)
    tokens, fed = prompts, prompts
    for _ in range(n_new):
        probs = model(fed, cache)[:, -1].float().softmax(-1)  # [B, V]
        fed = torch.multinomial(probs.to(generator.device), 1, generator=generator).to(
            prompts.device
        )  # [B, 1]
        tokens = torch.cat([tokens, fed], dim=1)  # [B, T + 1 ...]
    return tokens


@torch.inference_mode()
def acceptance_rate(
    target: Transformer, draft: Transformer, tokens: torch.Tensor, skip: int = 0
) -> float:
    """Mean probability that the target accepts the draft's next token, over the prefixes of tokens,
    int64 [B, T].

    After one prefix it is the sum over the vocabulary of min(target_probs, draft_probs), at
    temperature 1 (Leviathan et al. 2023, arXiv 2211.17192, corollary 3.6). The prefixes should come
    from the target, as they do in use; those of fewer than `skip` + 1 tokens are left out.
    ValueError if that leaves none.
    """
    skip = whole("the number of tokens to skip", skip, 0)
    if getattr(tokens, "ndim", 0) == 2 and skip >= tokens.shape[1]:
        raise ValueError(
            f"of {tokens.shape[1]} tokens the first {skip} are skipped, and no prefix is left."
        )
    check_vocabulary(target.config.V, draft.config.V)
    target_probs, draft_probs = (
        model(tokens)[:, skip:].float().softmax(-1) for model in (target, draft)
    )
    return float(torch.minimum(target_probs, draft_probs).sum(-1).mean())
