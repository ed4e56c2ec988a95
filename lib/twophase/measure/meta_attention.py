"""Attention on the meta device, where torch has no fused kernel: its stand-in takes
`scaled_dot_product_attention` apart and stores the scores, which no CPU does. Here the CPU's kernel
is called in its place, so that shapes alone tell what a step on a processor moves and holds.
"""

from __future__ import annotations

from typing import Any

import torch

from .formulas import operator_name


def is_attention_on_meta(func: Any, args: Any) -> bool:
    """Whether this is a call that a CPU would hand to its fused kernel, but on the meta device."""
    if operator_name(func) != "aten.scaled_dot_product_attention" or not args[0].is_meta:
        return False
    q, k, v = args[:3]
    return bool(q.dim() == 4 and q.shape[-1] == k.shape[-1] == v.shape[-1])


def fused_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    **renamed: Any,
) -> torch.Tensor:
    """What scaled_dot_product_attention calls on a CPU; takes its arguments."""
    mask, causal = renamed.get("attn_mask", mask), renamed.get("is_causal", causal)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out: torch.Tensor = kernel(q, k, v, dropout, causal, attn_mask=mask, scale=scale)[0]
    return out
