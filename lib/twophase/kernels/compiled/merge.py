"""Parts of an attention, each with a softmax of its own, as the whole: by their maxima and sums, as
in `kernels.online_softmax`."""

import numpy as np

from twophase.kernels.compiled.loops import inner
from twophase.kernels.compiled.numbers import exp

_f32 = np.float32
LOWEST_SCORE = np.finfo(np.float32).min  # finite: -inf minus -inf would be NaN
Array = np.ndarray


@inner
def room_for_parts(n: int, N: int, H: int) -> tuple[Array, Array, Array]:
    """For n parts of N heads: sums [n, N, H], maxima and totals [n, N]."""
    return np.empty((n, N, H), _f32), np.empty((n, N), _f32), np.empty((n, N), _f32)


@inner
def merge(first_task: Array, outs: Array, tops: Array, totals: Array, out: Array) -> None:
    """Parts outs [n, N, Hv], tops and totals [n, N] as the whole, out [B, N, Hv], where sequence b
    has those from first_task[b] to first_task[b + 1]. No parts: zeros. A NaN in a part is one in
    the whole."""
    B, N, Hv = out.shape
    for b in range(B):
        parts = range(first_task[b], first_task[b + 1])
        for i in range(N):
            top, total = LOWEST_SCORE, _f32(0)
            for part in parts:
                top = max(top, tops[part, i])
            for h in range(Hv):
                out[b, i, h] = _f32(0)
            for part in parts:
                weight = exp(tops[part, i] - top)
                total += weight * totals[part, i]
                for h in range(Hv):
                    out[b, i, h] += weight * outs[part, i, h]
            if len(parts) > 0:
                for h in range(Hv):
                    out[b, i, h] /= total
