"""How llama.cpp looks for the scales of its k-quants: a few scales are tried around the obvious
one, each is fitted to its codes by least squares, and the best is kept.

The same sums in the same order and in fp32, so that bytes are equal: blocks lie side by side here,
[blocks, n], and sums run over a block's numbers one after the other.
"""

import torch

NEGLIGIBLE = 1e-15  # ggml's GROUP_MAX_EPS: a block of smaller numbers is one of zeros


def ordered_sum(x: torch.Tensor) -> torch.Tensor:
    """[blocks, n] → [blocks]: from the first to the last, each sum rounded to fp32."""
    total = torch.zeros_like(x[:, 0])
    for column in x.unbind(1):
        total = total + column
    return total


def affine_scales(
    x: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scale and minimum of each block, [blocks], and codes [blocks, n] from 0 to 15, so that x ≈
    scale·code − minimum (ggml's make_qkx2_quants with rmin −1, rdelta 0.1, nstep 20).

    A better minimum is where the next try begins, as there.
    """
    last = 15
    minimum, high = x.amin(1).clamp(max=0), x.amax(1)
    empty = high == minimum
    high = torch.where(empty, minimum + 1, high)
    w_sum, x_sum = ordered_sum(weights), ordered_sum(weights * x)
    inverse = quotient(last, high - minimum)
    scale = quotient(1, inverse)
    best = _codes(x, minimum, inverse, last)
    error = _weighted_error(x, scale, minimum, best, weights)
    for step in range(21):
        # in fp32, as C computes it: a double product would tip a code now and then
        inverse = (_f32(-1.0) + _f32(0.1) * _f32(step) + _f32(last)) / (high - minimum)
        codes = _codes(x, minimum, inverse, last)
        l_sum, l_square = ordered_sum(weights * codes), ordered_sum(weights * codes * codes)
        product = ordered_sum(weights * codes * x)
        determinant = w_sum * l_square - l_sum * l_sum
        usable = determinant > 0
        safe = torch.where(usable, determinant, 1.0)
        new_scale = (w_sum * product - x_sum * l_sum) / safe
        new_minimum = (l_square * x_sum - l_sum * product) / safe
        above = new_minimum > 0
        new_scale = torch.where(above, product / l_square, new_scale)
        new_minimum = torch.where(above, 0.0, new_minimum)
        new_error = _weighted_error(x, new_scale, new_minimum, codes, weights)
        better = usable & (new_error < error)
        error = torch.where(better, new_error, error)
        scale = torch.where(better, new_scale, scale)
        minimum = torch.where(better, new_minimum, minimum)
        best = torch.where(better[:, None], codes, best)
    scale, minimum = torch.where(empty, 0.0, scale), torch.where(empty, x.amin(1), minimum)
    return scale, -minimum.clamp(max=0), torch.where(empty[:, None], 0.0, best)


def symmetric_scale(x: torch.Tensor, half: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale of each block, [blocks], and levels [blocks, n] from −half to half − 1, so that x ≈
    scale·level; large numbers count more (ggml's make_qx_quants with rmse_type 1)."""
    size = x.abs()
    extreme = x.gather(1, size.argmax(1, keepdim=True))[:, 0]  # of equal magnitudes the first
    empty = size.amax(1) < NEGLIGIBLE
    extreme = torch.where(empty, 1.0, extreme)
    levels, product, square = _fit(x, quotient(-half, extreme), half)
    scale = torch.where(square > 0, product / square, 0.0)
    best = scale * product
    for step in range(-9, 10):
        if step == 0:
            continue
        inverse = -(_f32(half) + _f32(0.1) * _f32(step)) / extreme
        tried, product, square = _fit(x, inverse, half)
        better = (square > 0) & (product * product > best * square)
        scale = torch.where(better, product / square, scale)
        best = torch.where(better, scale * product, best)
        levels = torch.where(better[:, None], tried, levels)
    return torch.where(empty, 0.0, scale), torch.where(empty[:, None], -float(half), levels)


def quotient(a: float, b: torch.Tensor) -> torch.Tensor:
    """a / b rounded once: Python's `a / tensor` is a times a reciprocal, rounded twice."""
    return _f32(a) / b


def _f32(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float32)


def _codes(
    x: torch.Tensor, minimum: torch.Tensor, inverse: torch.Tensor, last: int
) -> torch.Tensor:
    return (inverse[:, None] * (x - minimum[:, None])).round().clamp(0, last)


def _weighted_error(
    x: torch.Tensor,
    scale: torch.Tensor,
    minimum: torch.Tensor,
    codes: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:
    off = scale[:, None] * codes + minimum[:, None] - x
    return ordered_sum(weights * (off * off))


def _fit(
    x: torch.Tensor, inverse: torch.Tensor, half: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The levels l that x takes with this inverse scale, Σ x²·x·l, and Σ x²·l·l."""
    levels = (inverse[:, None] * x).round().clamp(-half, half - 1)
    weights = x * x
    product, square = ordered_sum(weights * x * levels), ordered_sum(weights * levels * levels)
    return levels, product, square
