"""Which of torch's kernels attention takes on a card."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

# all but cuDNN's, and whether torch may take them now
OTHERS: dict[SDPBackend, Callable[[], bool]] = {
    SDPBackend.FLASH_ATTENTION: torch.backends.cuda.flash_sdp_enabled,
    SDPBackend.EFFICIENT_ATTENTION: torch.backends.cuda.mem_efficient_sdp_enabled,
    SDPBackend.MATH: torch.backends.cuda.math_sdp_enabled,
}


def fuses_groups(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether torch has a kernel that shares the keys k, v [B, K, S, H] among the query heads of q
    [B, N, T, H], and stores no scores: on cards, in 16 bits."""
    if q.device.type != "cuda":
        return False
    params = torch.backends.cuda.SDPAParams(q, k, v, None, 0.0, True, True)
    return bool(torch.backends.cuda.can_use_flash_attention(params))


def in_one_call(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float | None
) -> torch.Tensor:
    """q [B, T, N, H], keys and values [B, K, S, H] → [B, T, N, H], T = S. A card that took a call
    for each member of the group would have K heads to share out among its processors, not N."""
    out = functional.scaled_dot_product_attention(
        q.transpose(1, 2), keys, values, is_causal=True, scale=scale, enable_gqa=True
    )  # [B, N, T, H]
    return out.transpose(1, 2)  # [B, T, N, H]


def kernels_that_split(heads: int, device: torch.device) -> AbstractContextManager[None]:
    """Where a card has more processors than there are KV heads of sequences: cuDNN's kernel,
    torch's own first choice, is left out, so that torch takes flash attention, which splits the
    keys of a head among several. cuDNN's seems to keep a head to one: 8 heads of 32,000 keys took
    an H100 378 µs in place of 68, a whole step of Llama-3-8B over 128,000 tokens 51.7 ms in place
    of 12.8; with 512 heads it was the quicker one (`measure.card_runs`, parts "attention" and
    "prefill"). What a caller has forbidden (`torch.nn.attention.sdpa_kernel`) stays forbidden,
    and where only cuDNN's is left, it is taken.

    No order of kernels is set: torch does not find back to its own order behind one that was.
    """
    if device.type != "cuda" or heads >= _processors(device):
        return nullcontext()
    allowed = [kernel for kernel, may_be_taken in OTHERS.items() if may_be_taken()]
    return sdpa_kernel(allowed) if allowed else nullcontext()


@cache
def _processors(device: torch.device) -> int:
    """Multiprocessors of a card."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
