"""Latent attention in its absorbed form."""

import numpy as np

from twophase.kernels.compiled import parts
from twophase.kernels.compiled.latent import absorb, append_latent, unfold
from twophase.kernels.compiled.linear import norm_project
from twophase.models.compiled.halves import Projection, choose
from twophase.models.compiled.plain import PlainHalf
from twophase.models.compiled.token import Token
from twophase.models.compiled.weights import (
    NoKernel,
    biases,
    check_kind,
    matrix,
    norm,
    rms_norm,
    stored,
)
from twophase.models.latent_attention import LatentAttention, UpProjection


class AbsorbedAttention:
    """Latent attention in calls as in its paper: norm and projections down (and queries up); norm,
    RoPE and cache; queries absorbed, attention over latents, values unfolded; the output."""

    def __init__(self, half: PlainHalf, parallel: bool) -> None:
        layer = half.layer
        check_kind(layer, LatentAttention)
        check_kind(layer.kv_b_proj, UpProjection)
        if layer.absorbed is False:
            raise NoKernel("it is told to unfold keys and values, and loops absorb")
        c, m = layer.config, layer.sizes
        self.layer, self.norm, q_width = (
            layer.layer,
            norm(half.before),
            c.N * (m.nope_dim + m.rope_dim),
        )
        low, self.q_norm = layer.q_proj if m.q_rank is None else layer.q_a_proj, None
        self.w_q = matrix(low, m.q_rank or q_width, c.D)
        self.w_kv = matrix(layer.kv_a_proj_with_mqa, m.R + m.rope_dim, c.D)
        self.bias = biases(low, layer.kv_a_proj_with_mqa)
        if m.q_rank is not None:
            self.q_norm = norm(layer.q_a_layernorm)
            self.q_up = matrix(layer.q_b_proj, q_width, m.q_rank)
            self.q_up_bias = biases(layer.q_b_proj)
            self.q_h = np.empty(m.q_rank, np.float32)
        self.kv_norm = rms_norm(layer.kv_a_layernorm, m.R)
        self.w_up = stored(layer.kv_b_proj.weight, c.N * (m.nope_dim + m.v_dim), m.R)
        self.w_up = self.w_up.reshape(c.N, m.nope_dim + m.v_dim, m.R)
        self.widths = m.R, m.rope_dim
        self.interleaved = c.rope_pairing == "interleaved"
        self.factor = np.float32(c.score_scale or (m.nope_dim + m.rope_dim) ** -0.5)
        self.h, self.both = np.empty(c.D, np.float32), np.empty(len(self.bias), np.float32)
        self.q = self.both[:q_width] if self.q_norm is None else np.empty(q_width, np.float32)
        self.q_latent = np.empty((1, c.N, m.R), np.float32)
        self.q_rope = np.empty((1, c.N, m.rope_dim), np.float32)
        self.summed, self.out = np.empty_like(self.q_latent), np.empty((c.N, m.v_dim), np.float32)
        self.project, self.absorb = choose(norm_project, parallel), choose(absorb, parallel)
        self.unfold = choose(unfold, parallel)
        self.attend = parts.attend_latents if parallel else parts.attend_latents_serially
        self.output = Projection(layer.o_proj, c.N * m.v_dim, c.D, half.after, parallel)

    def __call__(self, token: Token) -> None:
        """Add to the stream what the token finds among the latents."""
        n, none = self.norm, self.w_q[:0]
        self.project(
            token.x,
            n.scale,
            n.shift,
            n.eps,
            self.w_q,
            self.w_kv,
            none,
            self.bias,
            self.h,
            self.both,
        )
        if self.q_norm is not None:
            low, n = self.both[: len(self.q_h)], self.q_norm
            self.project(
                low,
                n.scale,
                n.shift,
                n.eps,
                self.q_up,
                none,
                none,
                self.q_up_bias,
                self.q_h,
                self.q,
            )
        slot, latents, rope_keys = token.latents(self.layer, *self.widths)
        cos, sin = token.rope("mla")
        n, latent = self.kv_norm, self.both[len(self.w_q) :]
        append_latent(latent, n.scale, n.eps, cos, sin, self.interleaved, latents, rope_keys, slot)
        self.absorb(
            self.q, self.w_up, cos, sin, self.interleaved, self.factor, self.q_latent, self.q_rope
        )
        self.attend(
            self.q_latent, self.q_rope, latents[:, None], rope_keys[:, None],
            *token.tables(len(latents), None, latents[0].nbytes), 0.0, self.summed,
        )  # fmt: skip
        self.unfold(self.summed, self.w_up, self.out)
        self.output(self.out.reshape(-1), token.x)
