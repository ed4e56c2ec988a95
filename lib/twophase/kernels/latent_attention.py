"""Multi-head latent attention, MLA (DeepSeek-AI, 2024, arXiv 2405.04434, section 2.1), in both of
its forms, and its cache.

What is cached of a token is one latent c of width R and one rotated key of width rope_dim, shared
by all N heads. Head n makes its own key and value from the latent: `k = [w_uk[n] c, rotated key]`,
`v = w_uv[n] c`; a query is `[q_nope, q_rope]`.

That product with w_uk[n] can be moved to the other side, and the one with w_uv[n] past the sum
(section 2.1.2):

    score:  q_nope · (w_uk[n] c_s)  =  (w_uk[n]ᵀ q_nope) · c_s           absorbed into the query
    output: Σ_s a_s (w_uv[n] c_s)   =  w_uv[n] (Σ_s a_s c_s)             absorbed into the output
    so attention runs on the cache itself: one key [c, rotated key] for all heads, whose value is c.

No such step exists for a rotated key, since its turn stands between q and w_uk; hence the part that
RoPE turns is apart.

Which is cheaper, `twophase.theory.latent_attention` says. With S = T (prefill) unfolding costs
what absorbing does, and narrow heads (nope_dim + v_dim < 2·R) make expanded pairs the cheaper ones.
With S ≫ T absorbing takes fewer FLOPs for up to 170 queries in DeepSeek-V2.
"""

import math

import torch
from torch.nn import functional

from twophase.kernels.attention import causal_attention, visible
from twophase.kernels.attention_inputs import check_mask, check_options, check_tensors
from twophase.kernels.kv_cache import SlotStore, check_queries
from twophase.kernels.span import Span
from twophase.theory.latent_attention import absorbed_flops, expanded_flops


class LatentCache(SlotStore):
    """One layer's latents [B, S_max, R] and rotated keys [B, S_max, rope_dim]: the token at
    position p lies in slot p.

    `attend` is the absorbed form, on views of what is stored; `read` gives what the expanded one
    unfolds. It takes `B·S_max·(R + rope_dim)` numbers: no factor 2, no N.
    """

    def __init__(
        self,
        B: int,
        S_max: int,
        R: int,
        rope_dim: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(B, (S_max, R), (S_max, rope_dim), dtype=dtype, device=device)
        self.latents, self.rope_keys = self.held

    def read(self, span: Span) -> tuple[torch.Tensor, torch.Tensor]:
        """All that the sequences hold, a span that was written included: views [B, S, R], [B, S,
        rope_dim]."""
        return self.latents[:, : span.end], self.rope_keys[:, : span.end]

    def attend(
        self, q_latent: torch.Tensor, q_rope: torch.Tensor, span: Span, *, scale: float
    ) -> torch.Tensor:
        """What absorbed queries, as in `attend_latents`, find in the latents: [B, T, N, R]."""
        check_queries(span, q_latent, q_rope)
        latent, rope_key = (held.to(q_latent.dtype) for held in self.read(span))
        return attend_latents(
            q_latent, q_rope, latent, rope_key, scale=scale, mask=span.mask_of_all()
        )


def expanded_attention(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    latent: torch.Tensor,
    k_rope: torch.Tensor,
    w_uk: torch.Tensor,
    w_uv: torch.Tensor,
    *,
    scale: float | None = None,
) -> torch.Tensor:
    """Causal MLA with keys and values unfolded from the latent: what prefill and training do.

    q_nope: [B, T, N, nope_dim]; q_rope: [B, T, N, rope_dim], rotated; latent: [B, S, R],
    normalized; k_rope: [B, S, rope_dim], rotated; w_uk: [N, nope_dim, R]; w_uv: [N, v_dim, R].
    Returns [B, T, N, v_dim]. The T queries are the last T of the S positions. `scale` multiplies
    the scores; None: 1/sqrt(nope_dim + rope_dim). Raises ValueError if shapes do not fit, or if T >
    S.
    """
    check_shapes(q_nope, q_rope, latent, k_rope, w_uk, w_uv)
    k_nope = torch.einsum("bsr,ndr->bsnd", latent, w_uk)  # [B, S, N, nope_dim]
    v = torch.einsum("bsr,ndr->bsnd", latent, w_uv)  # [B, S, N, v_dim]
    return attend_unfolded(q_nope, q_rope, k_nope, k_rope, v, scale=scale)


def attend_unfolded(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    k_nope: torch.Tensor,
    k_rope: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float | None = None,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """The attention of the expanded form, once keys and values are unfolded: k_nope [B, S, N,
    nope_dim], v [B, S, N, v_dim]; the rotated key k_rope [B, S, rope_dim] is shared by all heads.

    Queries, scale, result and errors as in `expanded_attention`; `mask` as in `causal_attention`.
    """
    check_tensors("latent attention", q_nope, q_rope, k_nope, k_rope, v)
    axes = [x.ndim for x in (q_nope, q_rope, k_nope, k_rope, v)]
    if axes != [4, 4, 4, 3, 4] or not (
        q_nope.shape[:3] == q_rope.shape[:3]
        and k_nope.shape[:3] == v.shape[:3]
        and k_rope.shape[:2] == v.shape[:2]
    ):
        raise ValueError(
            "unfolded latent attention needs q_nope, q_rope [B, T, N, ...], k_nope, v [B, S, N,"
            " ...] and k_rope [B, S, rope_dim]; got"
            f" {', '.join(str(list(x.shape)) for x in (q_nope, q_rope, k_nope, v, k_rope))}."
        )
    N, v_dim = v.shape[2:]
    k = torch.cat([k_nope, k_rope[:, :, None].expand(-1, -1, N, -1)], dim=-1)  # [B, S, N, H]
    q = torch.cat([q_nope, q_rope], dim=-1)  # [B, T, N, H], H = nope_dim + rope_dim
    if v_dim < k.shape[3] and v.device.type == "cpu":
        # torch's fused CPU kernel, 4 times faster, wants equal widths
        v = functional.pad(v, (0, k.shape[3] - v_dim))  # [B, S, N, H]
    return causal_attention(q, k, v, scale=scale, mask=mask)[..., :v_dim]  # [B, T, N, v_dim]


def absorbed_attention(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    latent: torch.Tensor,
    k_rope: torch.Tensor,
    w_uk: torch.Tensor,
    w_uv: torch.Tensor,
    *,
    scale: float | None = None,
) -> torch.Tensor:
    """The same, up to rounding, with w_uk absorbed into the query and w_uv into the output: what
    decode does.

    Arguments, result and errors as in `expanded_attention`. The latents are neither copied nor
    expanded: the N heads join the query length and share one key, the latent, which is its own
    value; what the rotated parts add to a score comes in as a bias.
    """
    check_shapes(q_nope, q_rope, latent, k_rope, w_uk, w_uv)
    if scale is None:
        scale = 1.0 / math.sqrt(q_nope.shape[3] + q_rope.shape[3])
    q_latent = torch.einsum("btnd,ndr->btnr", q_nope, w_uk)  # [B, T, N, R]
    summed = attend_latents(q_latent, q_rope, latent, k_rope, scale=scale)  # [B, T, N, R]
    return torch.einsum("btnr,ndr->btnd", summed, w_uv)  # [B, T, N, v_dim]


def attend_latents(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    latent: torch.Tensor,
    k_rope: torch.Tensor,
    *,
    scale: float,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """The attention of the absorbed form: weighted sums of latents, [B, T, N, R].

    q_latent: [B, T, N, R], w_uk absorbed; q_rope: [B, T, N, rope_dim]; latent: [B, S, R]; k_rope:
    [B, S, rope_dim]. `mask`: bool [1 or B, T, S], what each query sees; None: the T queries are the
    last of the S positions. Raises ValueError if shapes do not fit, if T > S without a mask, or for
    a scale that is not positive.
    """
    check_tensors("latent attention", q_latent, q_rope, latent, k_rope)
    check_options(None, None, scale)
    axes = [x.ndim for x in (q_latent, q_rope, latent, k_rope)]
    fits = axes == [4, 4, 3, 3] and latent.shape[:2] == k_rope.shape[:2]
    if not fits or [*q_latent.shape[:3], latent.shape[0], q_latent.shape[3], q_rope.shape[3]] != [
        *q_rope.shape[:3],
        *(q_latent.shape[0], latent.shape[2], k_rope.shape[2]),
    ]:
        raise ValueError(
            "latent attention needs q_latent [B, T, N, R], q_rope [B, T, N, rope_dim], latent [B,"
            " S, R] and k_rope [B, S, rope_dim]; got"
            f" {', '.join(str(list(x.shape)) for x in (q_latent, q_rope, latent, k_rope))}."
        )
    B, T, N, R = q_latent.shape
    S = latent.shape[1]
    if mask is not None:
        check_mask(mask, q_latent, latent, None)
    if mask is None and T > S:
        raise ValueError(f"{T} queries but {S} positions: each query needs its own latent.")
    flat = q_rope.reshape(B, T * N, -1)  # [B, T·N, rope_dim]
    bias = scale * (flat @ k_rope.mT).view(B, T, N, S)  # [B, T, N, S]
    if mask is None and T > 1:  # a lone last query sees every position
        mask = visible(T, S, device=bias.device)  # [1, T, S]
    if mask is not None:
        bias = bias.masked_fill(~mask[:, :, None], float("-inf"))
    key = latent[:, None]  # [B, 1, S, R]
    summed = functional.scaled_dot_product_attention(
        q_latent.reshape(B, 1, T * N, R),  # [B, 1, T·N, R]
        key,
        key,
        attn_mask=bias.view(B, 1, T * N, S),  # [B, 1, T·N, S]
        scale=scale,
    )
    summed = summed.view(B, T, N, R)  # [B, T, N, R]
    if mask is not None:  # where nothing is seen, the softmax is NaN
        summed = torch.where(mask.any(-1)[:, :, None, None], summed, 0.0)
    return summed


def absorbing_is_cheaper(T: int, S: int, R: int, nope_dim: int, rope_dim: int, v_dim: int) -> bool:
    """Whether the absorbed form takes fewer FLOPs than the expanded one for T queries over S
    positions, every query taken to see all S. The number of heads does not matter."""
    sizes = (1, T, S, 1, R, nope_dim, rope_dim, v_dim)
    return bool(absorbed_flops(*sizes) < expanded_flops(*sizes))


def check_shapes(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    latent: torch.Tensor,
    k_rope: torch.Tensor,
    w_uk: torch.Tensor,
    w_uv: torch.Tensor,
) -> None:
    """Raise ValueError with one sentence unless the arguments of `expanded_attention` fit and T ≤
    S."""
    tensors = (q_nope, q_rope, latent, k_rope, w_uk, w_uv)
    check_tensors("latent attention", *tensors)
    if [x.ndim for x in tensors] != [4, 4, 3, 3, 3, 3]:
        raise ValueError(
            "latent attention needs q_nope and q_rope of 4 axes, latent, k_rope, w_uk and w_uv of"
            f" 3; got {', '.join(str(list(x.shape)) for x in tensors)}."
        )
    B, T, N, nope_dim = q_nope.shape
    S, R = latent.shape[1:]
    rope_dim, v_dim = q_rope.shape[3], w_uv.shape[1]
    fits = [
        (B, T, N, nope_dim),
        (B, T, N, rope_dim),
        (B, S, R),
        (B, S, rope_dim),
        (N, nope_dim, R),
        (N, v_dim, R),
    ]
    names = ("q_nope", "q_rope", "latent", "k_rope", "w_uk", "w_uv")
    for name, x, shape in zip(names, tensors, fits, strict=True):
        if x.shape != shape:
            raise ValueError(
                f"{name} must be {list(shape)} to fit the other tensors; it is {list(x.shape)}."
            )
    if T > S:
        raise ValueError(
            f"{T} queries but {S} positions: each query needs its own latent, so append latents"
            " before attending."
        )
