"""Loops over latents [B, slots, R] whose token p lies in slot p, as a step of one sequence reads
them; `paging` hands over pages."""

import torch

from twophase.kernels.compiled import attention
from twophase.kernels.compiled.tables import even_block_tokens, share_out, slot_table


def attend_in_slots(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    latents: torch.Tensor,
    rope_keys: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """What `attend_latent_blocks` finds in the first `lengths[b]` slots of each sequence."""
    size = even_block_tokens(int(lengths.max()), latents[0, 0].nbytes, 1)
    table, starts = slot_table(lengths.numpy(), latents.shape[1], 0, size)
    work = attention.Work(table, *share_out(starts, attention.workers()))
    return attention.attend_latent_blocks(q_latent, q_rope, latents, rope_keys, work, scale)
