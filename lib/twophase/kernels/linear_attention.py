"""Linear attention: causal attention whose memory of the past is one matrix per head, however long
the past is.

Softmax attention weighs value s by exp(s_ts), with the scores s_ts = q_t·k_s / sqrt(f). Replace exp
by its Taylor polynomial, 1 + s + s²/2 (BASED: Arora et al., 2024, arXiv 2402.18668), and the weight
becomes a dot product of features, φ(q_t)·φ(k_s). Then φ(q_t) moves out of the sum over s
(Katharopoulos et al., 2020, arXiv 2006.16236, eq. 5):

    out_t = Σ_s φ(q_t)·φ(k_s) v_s / Σ_s φ(q_t)·φ(k_s)
          = φ(q_t)·(Σ_s φ(k_s) v_sᵀ) / φ(q_t)·(Σ_s φ(k_s))

and both sums over the past are a state that is updated token by token. Three ways to the same
numbers: all pairs at once (`parallel`, T² work, no features), the state alone (`recurrent_step`),
and a mix (`chunked`, linear in T). Since 1 + s + s²/2 = (1 + (1 + s)²)/2 ≥ 1/2, weights are
positive and the normalizer never vanishes.

Shapes: queries and keys [B, T, N, f], values [B, T, N, H]; every head has its own keys. A 1 is
written after each value, so that one sum gives both: its last column is the normalizer. Sums are in
fp32 whatever the inputs are.
"""

import math

import torch
from torch.nn import functional

from twophase.kernels.attention_inputs import check_tensors
from twophase.kernels.span import whole

ROWS = 64  # queries that the parallel form takes at a time


def taylor_features(x: torch.Tensor) -> torch.Tensor:
    """φ(x): [..., f] → [..., 1 + f + f²], such that φ(q)·φ(k) = 1 + s + s²/2 with s = q·k /
    sqrt(f).

    In order: 1; the f numbers over f^(1/4); their f² products over sqrt(2f). A product x_i·x_j with
    i ≠ j is there twice, as BASED counts it; f(f + 1)/2 products would do, one weighted more.
    """
    f = x.shape[-1]
    first = x / f**0.25  # [..., f]
    second = (first[..., :, None] * first[..., None, :] / math.sqrt(2)).flatten(-2)  # [..., f²]
    return torch.cat([torch.ones_like(x[..., :1]), first, second], dim=-1)  # [..., 1 + f + f²]


def sums_shape(N: int, feature_dim: int, H: int) -> tuple[int, int, int]:
    """The shape of what is kept of a sequence, whatever its length: Σ φ(k) vᵀ and, in the last
    column, Σ φ(k); zeros before the first token.

    Keep it in fp32. In bf16 the loss grows with the length: the first feature is always 1, so its
    normalizer counts tokens, and bf16 cannot count past 256 one by one (257 rounds to 256). Later
    tokens are lost, unless they come in large blocks.
    """
    N, H = whole("the number of heads", N, 1), whole("the width of a value", H, 1)
    feature_dim = whole("the width of queries and keys", feature_dim, 1)
    return N, 1 + feature_dim + feature_dim * feature_dim, H + 1


def parallel_linear_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """All T² pairs at once, from the scores and without features: for training and short prompts.

    q, k: [B, T, N, f]; v: [B, T, N, H]; returns [B, T, N, H] in the dtype of v. Raises ValueError
    if shapes do not fit.
    """
    check_shapes(q, k, v)
    dtype = torch.promote_types(v.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        q, k = q.to(dtype).transpose(1, 2), k.to(dtype).transpose(1, 2)  # [B, N, T, f]
        v_one = _with_one(v)  # [B, N, T, H + 1]
        ends = range(
            ROWS, q.shape[2] + ROWS, ROWS
        )  # rows in blocks skip most of what lies above the diagonal
        summed = [
            _pairs(q[:, :, end - ROWS : end], k[:, :, :end], v_one[:, :, :end]) for end in ends
        ]
    return _normalized(torch.cat(summed, dim=2), v.dtype)


def chunked_linear_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sums: torch.Tensor,
    chunk: int = 64,
    *,
    real: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The T tokens continue a state: pairs inside a chunk, the state between chunks. Returns their
    outputs and the state after them.

    Shapes as in `parallel_linear_attention`; sums: [B, N, 1 + f + f², H + 1]. `real`: bool [B, T],
    the tokens that count; the others leave no trace, and get zeros. Work grows linearly in T, as
    T·chunk·(f + H) + 2·T·(1 + f + f²)·H. Raises ValueError if shapes do not fit.
    """
    check_shapes(q, k, v)
    _check_sums(q, v, sums)
    chunk = whole("the number of tokens in a chunk", chunk, 1)
    dtype = torch.promote_types(v.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        after = sums.to(dtype)  # [B, N, features, H + 1]
        q, k = q.to(dtype).transpose(1, 2), k.to(dtype).transpose(1, 2)  # [B, N, T, f]
        v_one = _with_one(v, real)  # [B, N, T, H + 1]
        outs = []
        for start in range(0, q.shape[2], chunk):
            part = slice(start, start + chunk)
            qc, kc, vc = q[:, :, part], k[:, :, part], v_one[:, :, part]  # [B, N, chunk, ...]
            # 2·(1 + s + s²/2) = 1 + (1 + s)²: `_pairs` gives twice the weights.
            outs.append(
                2 * taylor_features(qc) @ after + _pairs(qc, kc, vc)
            )  # [B, N, chunk, H + 1]
            after = after + taylor_features(kc).mT @ vc  # [B, N, features, H + 1]
    return _normalized(torch.cat(outs, dim=2), v.dtype, real), after.to(sums.dtype)


def recurrent_step(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sums: torch.Tensor,
    *,
    real: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Decode: one token is added to the state and reads it. q, k: [B, 1, N, f]; v: [B, 1, N, H];
    returns [B, 1, N, H] and the state after it.

    `real` as in `chunked_linear_attention`. Raises ValueError if shapes do not fit or T is not 1.
    """
    check_shapes(q, k, v)
    _check_sums(q, v, sums)
    if q.shape[1] != 1:
        raise ValueError(
            f"a recurrent step takes one token; got {q.shape[1]}: use chunked_linear_attention."
        )
    dtype = torch.promote_types(v.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        phi_q, phi_k = (
            taylor_features(x.to(dtype)).transpose(1, 2) for x in (q, k)
        )  # [B, N, 1, features]
        after = sums.to(dtype) + phi_k.mT * _with_one(v, real)  # [B, N, features, H + 1]
        summed = phi_q @ after  # [B, N, 1, H + 1]
    return _normalized(summed, v.dtype, real), after.to(sums.dtype)


def _pairs(q: torch.Tensor, k: torch.Tensor, v_one: torch.Tensor) -> torch.Tensor:
    """Σ over the keys s that query t may see of *twice* the weight, (1 + s)² + 1, times (v_s, 1).

    q: [B, N, T, f]; k: [B, N, S, f]; v_one: [B, N, S, H + 1]; returns [B, N, T, H + 1]. The queries
    are the last T of S.
    """
    scores = q @ k.mT / math.sqrt(q.shape[-1])  # [B, N, T, S]
    weights = ((1 + scores).square() + 1).tril(k.shape[2] - q.shape[2])  # [B, N, T, S]
    return weights @ v_one  # [B, N, T, H + 1]


def _with_one(v: torch.Tensor, real: torch.Tensor | None = None) -> torch.Tensor:
    """Each value with a 1 behind it, in fp32 at least: [B, T, N, H] → [B, N, T, H + 1]; zeros where
    a token is not real."""
    v = v.to(torch.promote_types(v.dtype, torch.float32)).transpose(1, 2)  # [B, N, T, H]
    v_one = functional.pad(v, (0, 1), value=1.0)  # [B, N, T, H + 1]
    return v_one if real is None else v_one.masked_fill(~real[:, None, :, None], 0.0)


def _normalized(
    summed: torch.Tensor, dtype: torch.dtype, real: torch.Tensor | None = None
) -> torch.Tensor:
    """The sums of values over the sums of weights: [B, N, T, H + 1] → [B, T, N, H]; zeros where a
    token is not real."""
    out = (summed[..., :-1] / summed[..., -1:]).transpose(1, 2).to(dtype)  # [B, T, N, H]
    return out if real is None else out.masked_fill(~real[:, :, None, None], 0.0)


def check_shapes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Raise ValueError with one sentence unless q and k are [B, T, N, f] and v is [B, T, N, H],
    of floating-point numbers."""
    check_tensors("linear attention", q, k, v)
    if q.ndim != 4 or q.shape != k.shape or v.ndim != 4 or q.shape[:3] != v.shape[:3]:
        raise ValueError(
            "linear attention needs q and k of [B, T, N, f] and v of [B, T, N, H]; "
            f"got {list(q.shape)}, {list(k.shape)} and {list(v.shape)}."
        )


def _check_sums(q: torch.Tensor, v: torch.Tensor, sums: torch.Tensor) -> None:
    """Raise ValueError unless the state was made for these B, N, f and H."""
    check_tensors("linear attention", q, sums)
    B, _, N, f = q.shape
    expected = [B, *sums_shape(N, f, v.shape[3])]
    if list(sums.shape) != expected:
        raise ValueError(
            f"a state of {list(sums.shape)} does not fit B = {B}, N = {N}, f = {f} and H ="
            f" {v.shape[3]}: it needs {expected}."
        )
