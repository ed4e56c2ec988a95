"""What every kernel of attention refuses, in one sentence each: shapes that do not fit, options out
of range."""

import torch


def check_options(window: int | None, softcap: float | None, scale: float | None) -> None:
    """Raise ValueError unless all three are absent or positive, the window a whole number; NaN is
    neither."""
    if window is not None and (not hasattr(window, "__index__") or window < 1):
        raise ValueError(f"a window holds at least the query's own key; got {window!r}.")
    if softcap is not None and not softcap > 0:
        raise ValueError(f"a soft cap bounds the scores and must be positive; got {softcap}.")
    if scale is not None and not scale > 0:
        raise ValueError(f"scores are multiplied with a scale that must be positive; got {scale}.")


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
    if mask.dtype != torch.bool or mask.shape not in ((1, T, S), (B, T, S)):
        raise ValueError(
            f"a mask is a bool tensor [1 or {B}, {T}, {S}]; got {mask.dtype} {list(mask.shape)}."
        )
    if window is not None:
        raise ValueError("a mask says all: it goes without a window.")
