"""Products of int8 with int8, activations quantized as they come: per token, and with outliers kept
apart (LLM.int8(): Dettmers et al. 2022, arXiv 2208.07339, section 3).

A token's largest number sets its scale. One input that is always large therefore takes the levels
from all others: at a largest number of 60 a level is 0.47, and most inputs round to 0. LLM.int8()
takes out the inputs where any token exceeds a threshold, multiplies them in floating point, and
rounds the rest.
"""

import torch

LAST = 127


def quantize_tokens(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Activations [..., I] as int8 with a scale for each token, fp32 [..., 1]; absmax."""
    largest = x.abs().amax(-1, keepdim=True).float()
    scales = torch.where(largest == 0, 1.0, largest / LAST)
    return (x.float() / scales).round().clamp(-LAST, LAST).to(torch.int8), scales


def int8_product(x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """x Wᵀ, fp32 [..., O], with x [..., I] rounded to int8 token by token and W = codes int8 [O, I]
    times scales fp32 [O]: sums of whole numbers, exact, and one product of scales at the end.
    ValueError if shapes do not fit, or for codes that are not int8."""
    fits = x.ndim and codes.shape == (*scales.shape, x.shape[-1]) and scales.ndim == 1
    if not fits or codes.dtype != torch.int8 or not scales.is_floating_point():
        raise ValueError(
            "a product in int8 takes x [..., I], codes int8 [O, I] and scales [O]; got"
            f" {list(x.shape)}, {codes.dtype} {list(codes.shape)} and {scales.dtype}"
            f" {list(scales.shape)}."
        )
    tokens, each = quantize_tokens(x)
    # float64 holds such sums exactly, and multiplies faster than torch's integers on a CPU
    sums = tokens.double() @ codes.double().T
    return sums.float() * each * scales


def outlier_inputs(x: torch.Tensor, threshold: float = 6.0) -> torch.Tensor:
    """Which inputs hold an outlier in any token: bool [I]. ValueError for a threshold that is not
    positive, which nothing would be below."""
    if not threshold > 0:
        raise ValueError(f"an outlier is at least as large as a positive size; got {threshold}.")
    return x.abs().flatten(0, -2).amax(0) >= threshold


def product_with_outliers(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, threshold: float = 6.0
) -> torch.Tensor:
    """As `int8_product`, but inputs with outliers are multiplied in floating point, with their
    weights widened."""
    outliers = outlier_inputs(x, threshold)
    rest = int8_product(x.masked_fill(outliers, 0.0), codes, scales)
    if not outliers.any():
        return rest
    kept = codes[:, outliers].float() * scales[:, None]  # [O, outliers]
    return rest + x[..., outliers].float() @ kept.T
