"""GPTQ: round a matrix column by column, and let the columns to come make up for each error.

The layer's output error on calibration inputs X is tr(ΔW H ΔWᵀ) with H = XᵀX. With column i
rounded, columns j > i make up for most of it if they move by −(w_i − q_i) / [H⁻¹]_ii · [H⁻¹]_ij,
where H⁻¹ is the inverse over the columns that are left (optimal brain surgery). One upper Cholesky
factor U of the whole inverse, H⁻¹ = UᵀU, holds the rows of all these inverses: [H⁻¹]_ij / [H⁻¹]_ii
= U_ij / U_ii. (Frantar et al. 2023, arXiv 2210.17323, section 3, algorithm 1; updates here reach
all later columns at once, which changes the order of sums and nothing else.)
"""

import math

import torch

from twophase.kernels.quantization.integers import IntegerFormat, Integers, from_codes
from twophase.kernels.quantization.numbers import check_hessian, check_numbers


def gptq(
    w: torch.Tensor, hessian: torch.Tensor, how: IntegerFormat, damping: float = 0.01
) -> Integers:
    """Codes of w [O, I] for inputs whose XᵀX is `hessian` [I, I].

    The grid of a group is that of its columns as earlier groups have moved them, when its first
    column comes. `damping`, a share of the mean diagonal, is added to the diagonal. Inputs that
    were always 0 have their weights rounded as they are. Raises ValueError for shapes that do not
    fit, a grid per tensor, and damping outside of (0, 1].
    """
    columns = check_numbers(w, 2).double().clone()
    O, I = columns.shape
    if tuple(hessian.shape) != (I, I) or how.group == "tensor" or not 0 < damping <= 1:
        raise ValueError(
            f"GPTQ of [{O}, {I}] takes a hessian [{I}, {I}], groups or channels, and damping above"
            f" 0 and at most 1; got {list(hessian.shape)}, {how.group!r}, {damping}."
        )
    check_hessian(hessian, I)
    factor = inverse_factor(hessian, damping)
    size = how.group_of(I)
    alone = IntegerFormat(how.bits, "channel", how.affine, how.scale_dtype)
    codes = torch.empty(O, I, dtype=torch.uint8, device=w.device)
    all_scales, all_zeros = [], []
    for i in range(I):
        if i % size == 0:
            scales, zeros = alone.grid(columns[:, i : i + size])  # [O, 1]
            all_scales.append(scales)
            all_zeros.append(zeros)
        codes[:, i] = alone.round(columns[:, i : i + 1], scales, zeros)[:, 0]
        offset = how.half if zeros is None else zeros[:, 0].double()
        rounded = (codes[:, i].double() - offset) * scales[:, 0].double()  # [O]
        error = (columns[:, i] - rounded) / factor[i, i]
        columns[:, i:] -= error[:, None] * factor[i, i:]
    stored_zeros = torch.cat([z for z in all_zeros if z is not None], 1) if how.affine else None
    return from_codes(codes, how, torch.cat(all_scales, 1), stored_zeros)


def inverse_factor(hessian: torch.Tensor, damping: float) -> torch.Tensor:
    """The upper triangular U with UᵀU = (H + damping·mean(diag H)·1)⁻¹, fp64 [I, I]. ValueError if
    there is none."""
    if not 0 <= damping < math.inf:
        raise ValueError(f"damping is a share of the mean diagonal, 0 or more; got {damping}.")
    h = hessian.double().clone()
    diagonal = h.diagonal()
    diagonal[diagonal == 0] = 1.0  # an input that was always 0: nothing to make up for
    diagonal += damping * diagonal.mean()
    lower, failed = torch.linalg.cholesky_ex(h)
    if failed:
        raise ValueError(
            f"H of {len(h)} inputs has no inverse with damping {damping}: take more, or more"
            " tokens to calibrate on."
        )
    inverse = torch.cholesky_inverse(lower)
    factor: torch.Tensor = torch.linalg.cholesky(inverse, upper=True)
    return factor


def output_error(difference: torch.Tensor, hessian: torch.Tensor) -> float:
    """Σ of squares of X ΔWᵀ, the output error of a layer on its calibration inputs, from ΔW [O, I]
    and XᵀX [I, I]: tr(ΔW H ΔWᵀ). ValueError if shapes do not fit."""
    if difference.ndim != 2 or hessian.shape != (difference.shape[1],) * 2:
        raise ValueError(
            "an output error is of a difference [O, I] and a hessian [I, I]; got"
            f" {list(difference.shape)} and {list(hessian.shape)}."
        )
    d = difference.double()
    return float(((d @ hessian.double()) * d).sum())
