"""Scales of input channels, put into weights and taken out of activations: AWQ and SmoothQuant.

W x = (W·s)(x / s) for any positive s per input. Both choose s, and divide the layer before by it,
so that nothing is left to do at run time; they differ in what for.

- AWQ: weights alone are rounded. Channels with large activations get a larger s, so that their
  weights are rounded on a finer grid relative to their size: s = (mean |x|)**α, with the α that
  costs least (Lin et al. 2023, arXiv 2306.00978, section 3.2). Its authors' code then cuts off the
  largest weights of each group, where that costs less than the grid it makes finer: `clip_groups`.
- SmoothQuant: weights and activations are rounded. Outliers move from activations, where they
  stretch the grid of a token, into weights: s = max|x|**α / max|w|**(1 − α) (Xiao et al. 2022,
  arXiv 2211.10438, equation 4).
"""

import torch

from twophase.kernels.quantization.gptq import output_error
from twophase.kernels.quantization.integers import IntegerFormat, encode
from twophase.kernels.quantization.numbers import check_hessian, check_numbers

STEPS = 20  # tries of α in AWQ's search: 0, 1/20, ... 19/20
SHARES = tuple(
    1 - i / 20 for i in range(10)
)  # tries of a group's largest weight: 1, 0.95, ... 0.55


def awq_scales(
    matrices: list[torch.Tensor], mean_size: torch.Tensor, hessian: torch.Tensor, how: IntegerFormat
) -> tuple[torch.Tensor, float]:
    """The scales [I] for matrices [O, I] that read the same inputs, and the α they came from.

    `mean_size` [I] is mean |x| of each input, `hessian` XᵀX. The error is that of these matrices'
    outputs together. α = 0 is rounding to nearest: the result is never worse. ValueError for shapes
    that do not fit, and for inputs that are no finite numbers.
    """
    check_numbers(mean_size)
    _check_matrices(matrices, mean_size)
    check_hessian(hessian, len(mean_size))
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


def clip_groups(w: torch.Tensor, hessian: torch.Tensor, how: IntegerFormat) -> torch.Tensor:
    """w [O, I] with each group's largest magnitudes cut off where that costs least, fp32.

    A group that ends at a share of its largest weight has a finer grid for all the others. The
    share (1, 0.95, ... 0.55) is chosen for each row and group by what its own inputs make of the
    error, on inputs whose XᵀX is `hessian` [I, I]: no group knows of the others. So the result is
    never worse group by group. (AWQ's code, auto_clip, searches so.) Raises ValueError for a scale
    a tensor, and as `encode`.
    """
    if how.group == "tensor":
        raise ValueError("clipping is searched group by group, or row by row; not for a tensor.")
    wide = check_numbers(w, 2)
    check_hessian(hessian, wide.shape[1])
    size = how.group_of(wide.shape[1])
    alone = IntegerFormat(how.bits, "channel", how.affine, how.scale_dtype)
    parts = []
    for start in range(0, wide.shape[1], size):
        part, inputs = wide[:, start : start + size], slice(start, start + size)
        own, largest = hessian[inputs, inputs].double(), part.abs().amax(1, keepdim=True)
        best, least = part, own.new_full((len(part),), torch.inf)
        for share in SHARES:
            cut = torch.minimum(torch.maximum(part, -share * largest), share * largest)
            off = (alone.nearest(cut) - part).double()  # [O, size]
            error = ((off @ own) * off).sum(1)  # [O]
            better = error < least
            least = torch.where(better, error, least)
            best = torch.where(better[:, None], cut, best)
        parts.append(best)
    return torch.cat(parts, 1)  # [O, I]


def _check_matrices(matrices: list[torch.Tensor], of_inputs: torch.Tensor) -> None:
    """ValueError unless there is a matrix [O, I], and all read the inputs of `of_inputs` [I]."""
    shapes = [list(w.shape) for w in matrices]
    if of_inputs.ndim != 1 or not shapes or any(s[1:] != list(of_inputs.shape) for s in shapes):
        raise ValueError(
            "scales [I] are of one number for each input and of matrices [O, I], at least one; got"
            f" {list(of_inputs.shape)} and {shapes}."
        )


def smooth_scales(
    matrices: list[torch.Tensor], largest: torch.Tensor, alpha: float = 0.5
) -> torch.Tensor:
    """SmoothQuant's scales [I] for matrices [O, I] that read inputs of at most `largest` [I].

    An input that was always 0, or has no weight, keeps scale 1. ValueError for α outside of [0, 1],
    shapes that do not fit, and inputs that are no finite numbers.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha lies between 0 and 1; got {alpha}.")
    check_numbers(largest)
    _check_matrices(matrices, largest)
    weights = torch.stack([w.abs().amax(0) for w in matrices]).amax(0)  # [I]
    scales = largest.pow(alpha) / weights.pow(1 - alpha)
    return torch.where((largest > 0) & (weights > 0), scales, 1.0)
