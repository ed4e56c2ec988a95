"""RMSNorm: a vector divided by its root mean square (Zhang and Sennrich, 2019, arXiv 1910.07467,
eq. 4)."""

import math

import torch


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """`x / sqrt(mean(x²) + eps) * weight` over the last axis.

    x: [..., D] of any float dtype; weight: [D]; returns [..., D] in the dtype of `x`. The square is
    taken in fp32, because in bf16 a sum of D squares keeps only 8 bits. Raises ValueError if shapes
    do not fit, or for an eps that is negative or infinite.
    """
    if weight.shape != x.shape[-1:]:
        raise ValueError(
            f"rms_norm needs one weight per feature: x ends in {x.shape[-1]}, weight is "
            f"{list(weight.shape)}."
        )
    if not 0 <= eps < math.inf:
        raise ValueError(
            f"eps keeps a root from 0, and is a small number of at least 0; got {eps}."
        )
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)  # [..., 1]
    return (wide * scale).to(x.dtype) * weight.to(x.dtype)
