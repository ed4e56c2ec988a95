"""Latent attention in its absorbed form."""

import numpy as np

from twophase.kernels.compiled import parts
from twophase.kernels.compiled.latent import absorb, append_latent, unfold
from twophase.models.compiled.plain import PlainHalf
from twophase.models.compiled.products import Output, norm_projection
from twophase.models.compiled.token import Token, Workspace
from twophase.models.compiled.weights import (
    NoKernel,
    check_kind,
    norm,
    rms_norm,
    stored,
)
from twophase.models.latent_attention import LatentAttention, UpProjection


class AbsorbedAttention:
    """Latent attention in calls as in its paper: norm and projections down (and queries up); norm,
    RoPE and cache; queries absorbed, attention over latents, values unfolded; the output."""

    def __init__(self, half: PlainHalf, work: Workspace) -> None:
        layer = half.layer
        check_kind(layer, LatentAttention)
        check_kind(layer.kv_b_proj, UpProjection)
        if layer.absorbed is False:
            raise NoKernel("it is told to unfold keys and values, and loops absorb")
        c, m = layer.config, layer.sizes
        self.layer, q_width = layer.layer, c.N * (m.nope_dim + m.rope_dim)
        low, self.project_q = layer.q_proj if m.q_rank is None else layer.q_a_proj, None
        outputs = [m.q_rank or q_width, m.R + m.rope_dim]
        down = [low, layer.kv_a_proj_with_mqa]
        self.project = norm_projection(norm(half.before), down, outputs, work)
        self.q, self.latent = self.project.y[: outputs[0]], self.project.y[outputs[0] :]
        if m.q_rank is not None:
            before, self.q_low = norm(layer.q_a_layernorm), self.q
            self.project_q = norm_projection(before, [layer.q_b_proj], [q_width], work, "queries")
            self.q = self.project_q.y
        self.kv_norm = rms_norm(layer.kv_a_layernorm, m.R)
        self.w_up = stored(layer.kv_b_proj.weight, c.N * (m.nope_dim + m.v_dim), m.R)
        self.w_up = self.w_up.reshape(c.N, m.nope_dim + m.v_dim, m.R)
        self.widths = m.R, m.rope_dim
        self.interleaved = c.rope_pairing == "interleaved"
        self.scale = np.float32(c.score_scale or (m.nope_dim + m.rope_dim) ** -0.5)
        self.q_latent = work.scratch("absorbed", 1, c.N, m.R)
        self.q_rope = work.scratch("turned", 1, c.N, m.rope_dim)
        self.summed = work.scratch("summed", 1, c.N, m.R)
        self.out = work.scratch("found", c.N, m.v_dim)
        self.absorb, self.unfold = work.choose(absorb), work.choose(unfold)
        self.attend = work.choose(parts.attend_latents)
        self.output = Output(layer.o_proj, self.out, c.D, half.after, work)

    def __call__(self, token: Token) -> None:
        """Add to the stream what the token finds among the latents."""
        self.project(token.x, token.workers)
        if self.project_q is not None:
            self.project_q(self.q_low, token.workers)
        slot, latents, rope_keys = token.latents(self.layer, *self.widths)
        cos, sin = token.rope("mla")
        n = self.kv_norm
        append_latent(
            self.latent, n.scale, n.eps, cos, sin, self.interleaved, latents, rope_keys, slot
        )
        self.absorb(self.q, self.w_up, cos, sin, self.interleaved, self.q_latent, self.q_rope)
        self.attend(
            self.q_latent, self.q_rope, latents[:, None], rope_keys[:, None],
            *token.tables(len(latents), None, latents[0].nbytes), self.scale, 0.0, self.summed,
        )  # fmt: skip
        self.unfold(self.summed, self.w_up, self.out)
        self.output(token)
