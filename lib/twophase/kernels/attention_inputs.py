"""What every kernel of attention refuses, in one sentence each: shapes that do not fit, options out
of range."""

import math

import torch


def check_options(window: int | None, softcap: float | None, scale: float | None) -> None:
    """Raise ValueError unless all three are absent or positive and finite, the window a whole
    number; NaN is neither."""
    if window is not None and (
        isinstance(window, bool) or not hasattr(window, "__index__") or window < 1
    ):
        raise ValueError(f"a window holds at least the query's own key; got {window!r}.")
    if softcap is not None and not _is_positive(softcap):
        raise ValueError(f"a soft cap bounds the scores and must be positive; got {softcap!r}.")
    if scale is not None and not _is_positive(scale):
        raise ValueError(
            f"scores are multiplied with a scale that must be positive; got {scale!r}."
        )


def _is_positive(number: object) -> bool:
    return hasattr(number, "__float__") and 0 < float(number) < math.inf


def check_tensors(what: str, *tensors: torch.Tensor, one_dtype: bool = False) -> None:
    """Raise ValueError, about `what` takes them, unless all are tensors of floating-point numbers
    on one device; with `one_dtype` also if no autocast makes their dtypes alike."""
    if not all(isinstance(x, torch.Tensor) for x in tensors):
        kinds = ", ".join(type(x).__name__ for x in tensors)
        raise ValueError(f"{what} takes torch tensors; got {kinds}: call torch.tensor on them.")
    device, dtype = tensors[0].device, tensors[0].dtype
    if not all(x.device == device and x.is_floating_point() for x in tensors):
        got = ", ".join(f"{x.dtype} on {x.device}" for x in tensors)
        raise ValueError(
            f"{what} takes floating-point tensors on one device; got {got}: convert them."
        )
    mixed = one_dtype and any(x.dtype != dtype for x in tensors)
    if mixed and not torch.is_autocast_enabled(device.type):
        got = ", ".join(str(x.dtype) for x in tensors)
        raise ValueError(f"{what} takes tensors of one dtype; got {got}: convert them.")


def check_shapes(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = True,
    same_width: bool = True,
) -> None:
    """Raise ValueError with one sentence unless q [B, T, N, H] and k, v [B, S, K, H] fit and, if
    causal, T ≤ S.

    `same_width=False`: v may be [B, S, K, Hv] with a width of its own.
    """
    check_tensors("attention", q, k, v, one_dtype=True)
    alike = k.shape == v.shape if same_width else k.shape[:3] == v.shape[:3]
    if not q.ndim == k.ndim == v.ndim == 4 or not alike:
        raise ValueError(
            f"attention needs q [B, T, N, H] and k, v [B, S, K, H]; got {list(q.shape)},"
            f" {list(k.shape)}, {list(v.shape)}."
        )
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"q and k must agree in B and H; got q {list(q.shape)} and k {list(k.shape)}."
        )
    if k.shape[2] == 0 or q.shape[2] % k.shape[2]:
        raise ValueError(
            f"the {q.shape[2]} query heads cannot be shared evenly among {k.shape[2]} KV heads."
        )
    if causal and q.shape[1] > k.shape[1]:
        raise ValueError(
            f"{q.shape[1]} queries but {k.shape[1]} keys: each query needs its own key, so append"
            " keys before attending."
        )


def check_mask(mask: torch.Tensor, q: torch.Tensor, k: torch.Tensor, window: int | None) -> None:
    """Raise ValueError unless the mask is bool [1 or B, T, S] and comes without a window."""
    B, T, S = q.shape[0], q.shape[1], k.shape[1]
    if not isinstance(mask, torch.Tensor) or mask.device != q.device:
        got = f"one on {mask.device}" if hasattr(mask, "device") else type(mask).__name__
        raise ValueError(f"a mask is a bool tensor on the device of q, {q.device}; got {got}.")
    if mask.dtype != torch.bool or mask.shape not in ((1, T, S), (B, T, S)):
        raise ValueError(
            f"a mask is a bool tensor [1 or {B}, {T}, {S}]; got {mask.dtype} {list(mask.shape)}."
        )
    if window is not None:
        raise ValueError("a mask says all: it goes without a window.")
