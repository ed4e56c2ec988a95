"""Scales of input channels, put into weights and taken out of activations: AWQ and SmoothQuant.

W x = (W·s)(x / s) for any positive s per input. Both choose s, and divide the layer before by it,
so that nothing is left to do at run time; they differ in what for.

- AWQ: weights alone are rounded. Channels with large activations get a larger s, so that their
  weights are rounded on a finer grid relative to their size: s = (mean |x|)**α, with the α that
  costs least (Lin et al. 2023, arXiv 2306.00978, section 3.2).
- SmoothQuant: weights and activations are rounded. Outliers move from activations, where they
  stretch the grid of a token, into weights: s = max|x|**α / max|w|**(1 − α) (Xiao et al. 2022,
  arXiv 2211.10438, equation 4).
"""

import torch

from twophase.kernels.quantization.gptq import output_error
from twophase.kernels.quantization.integers import IntegerFormat, encode

STEPS = 20  # tries of α in AWQ's search: 0, 1/20, ... 19/20


def awq_scales(
    matrices: list[torch.Tensor], mean_size: torch.Tensor, hessian: torch.Tensor, how: IntegerFormat
) -> tuple[torch.Tensor, float]:
    """The scales [I] for matrices [O, I] that read the same inputs, and the α they came from.

    `mean_size` [I] is mean |x| of each input, `hessian` XᵀX. The error is that of these matrices'
    outputs together. α = 0 is rounding to nearest: the result is never worse.
    """
    best = torch.ones_like(mean_size), 0.0
    least = sum(scaled_error(w, best[0], hessian, how) for w in matrices)
    for step in range(1, STEPS):
        scales = mean_size.clamp(min=1e-4).pow(step / STEPS)
        scales = scales / (scales.max() * scales.min()).sqrt()
        error = sum(scaled_error(w, scales, hessian, how) for w in matrices)
        if error < least:
            least, best = error, (scales, step / STEPS)
    return best


def scaled_error(
    w: torch.Tensor, scales: torch.Tensor, hessian: torch.Tensor, how: IntegerFormat
) -> float:
    """The output error of w if w·s is rounded and inputs are divided by s."""
    return output_error(encode(w * scales, how).decode() / scales - w, hessian)


def smooth_scales(
    matrices: list[torch.Tensor], largest: torch.Tensor, alpha: float = 0.5
) -> torch.Tensor:
    """SmoothQuant's scales [I] for matrices [O, I] that read inputs of at most `largest` [I].

    An input that was always 0, or has no weight, keeps scale 1. ValueError for α outside of [0, 1].
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha lies between 0 and 1; got {alpha}.")
    weights = torch.stack([w.abs().amax(0) for w in matrices]).amax(0)  # [I]
    scales = largest.pow(alpha) / weights.pow(1 - alpha)
    return torch.where((largest > 0) & (weights > 0), scales, 1.0)
