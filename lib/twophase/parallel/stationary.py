"""2D weight-stationary: every matrix is cut both ways, `Win[D_X, F_YZ]` and `Wout[F_YZ, D_X]`, and
never moves; activations do (Pope et al., 2022, arXiv 2211.05102, section 3.2.2).

Ranks form a mesh of X by YZ. The stream rests in pieces, [B, T, D_XYZ]. Each half of a layer
gathers it over YZ, sums its products over X, works on its share of them, gathers these over X, and
sums the result over YZ back to where the stream rests. Attention works on the sequences of its X
and the heads of its YZ, so that the cache is cut by both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from twophase.kernels.collectives import Comm
from twophase.kernels.mlp import ACTIVATIONS
from twophase.kernels.rope import apply_rope, rope_tables
from twophase.kernels.span import Span, span_counts
from twophase.measure.collectives import Tracer
from twophase.models.blank import WithoutInitialization
from twophase.models.cache import Counts
from twophase.models.config import Config
from twophase.models.step import Step, among_real
from twophase.models.stores import new_cache
from twophase.parallel.cut_caches import check_keys_and_values
from twophase.parallel.dealt import DealtCache
from twophase.parallel.shares import head_shares, share, sizes
from twophase.parallel.tensor import VocabularyColumns, VocabularyRows
from twophase.parallel.weights import Source
from twophase.theory.sharding import weight_stationary_best_x


@dataclass(frozen=True)
class Mesh:
    """The groups of a rank: `x` along the first axis, `yz` along the others, `all` of them."""

    all: Comm
    x: Comm
    yz: Comm

    @classmethod
    def of(cls, comm: Comm, X: int) -> Mesh:
        """Rank x·YZ + yz stands at (x, yz). ValueError unless X divides the ranks."""
        if not 1 <= X <= comm.size or comm.size % X:
            raise ValueError(f"{comm.size} ranks form no mesh of {X} by others: X divides them.")
        YZ = comm.size // X
        rows = [[x * YZ + yz for yz in range(YZ)] for x in range(X)]
        columns = [[x * YZ + yz for x in range(X)] for yz in range(YZ)]
        return cls(comm, comm.split(columns, "X"), comm.split(rows, "YZ"))

    def rests(self, D: int) -> range:
        """The numbers of the stream that rest on this rank."""
        own = share(D, self.x.rank, self.x.size)
        piece = share(len(own), self.yz.rank, self.yz.size)
        return range(own.start + piece.start, own.start + piece.stop)


class WeightStationary:
    """A rank's pieces of all matrices; all ranks together are what `generate` runs as a
    Transformer. X: ranks along the first axis; the divisor nearest the theory's best, if not
    said."""

    def __init__(
        self,
        source: Source,
        comm: Comm,
        dtype: torch.dtype | None = None,
        device: torch.device | str = "cpu",
        X: int | None = None,
    ) -> None:
        c = self.config = source.config
        check_stationary(c)
        self.mesh = mesh = Mesh.of(comm, best_x(c, comm.size) if X is None else X)
        if min(c.D, c.F, c.V) < comm.size:
            raise ValueError(f"D, F and V must be at least the {comm.size} ranks; they are {c}.")
        self.device, self.dtype, self._step = torch.device(device), dtype or source.dtype, 0
        self.heads = head_shares(c.N, c.K, mesh.yz.rank, mesh.yz.size)
        self.part_config = Config(
            L=c.L, D=c.D, F=c.F, N=len(self.heads[0]), K=len(self.heads[1]), H=c.H, V=c.V,
            attention=c.attention, window=c.window, kv_source=c.kv_source,
        )  # fmt: skip
        self.F_sizes = sizes(len(share(c.F, mesh.yz.rank, mesh.yz.size)), mesh.x.size)
        self.D_sizes = sizes(len(share(c.D, mesh.x.rank, mesh.x.size)), mesh.yz.size)
        own_V = share(c.V, comm.rank, comm.size)
        with torch.device("meta"), WithoutInitialization():
            self.embed_tokens = VocabularyRows(own_V, c.V, c.D, comm)
            self.lm_head = VocabularyColumns(own_V, c.D, sizes(c.V, comm.size), comm)
        rows = (0, own_V.start, own_V.stop)
        self.weights = {
            name: source.read(name, *box).to(device=self.device, dtype=self.dtype)
            for name, box in self._boxes().items()
        }
        for module, name in ((self.embed_tokens, "embed_tokens"), (self.lm_head, "lm_head")):
            weight = source.read(f"{name}.weight", rows).to(device=self.device, dtype=self.dtype)
            module.load_state_dict({"weight": weight}, assign=True)
            module.requires_grad_(False)

    def _boxes(self) -> dict[str, list[tuple[int, int, int]]]:
        """What this rank reads of each parameter, but the vocabulary's."""
        c, mesh = self.config, self.mesh
        D, F = share(c.D, mesh.x.rank, mesh.x.size), share(c.F, mesh.yz.rank, mesh.yz.size)
        rest, (queries, keys) = mesh.rests(c.D), self.heads

        def cut(axis: int, own: range, width: int = 1) -> tuple[int, int, int]:
            return axis, own.start * width, own.stop * width

        found = {"norm.weight": [cut(0, rest)]}
        for layer in range(c.L):
            at = f"layers.{layer}"
            for norm in ("input_layernorm", "post_attention_layernorm"):
                found[f"{at}.{norm}.weight"] = [cut(0, rest)]
            projections = {"q": queries} | (
                {"k": keys, "v": keys} if c.source(layer) == layer else {}
            )
            for name, heads in projections.items():
                found[f"{at}.self_attn.{name}_proj.weight"] = [cut(0, heads, c.H), cut(1, D)]
            found[f"{at}.self_attn.o_proj.weight"] = [cut(0, D), cut(1, queries, c.H)]
            for name in ("gate", "up") if c.gated_mlp else ("up",):
                found[f"{at}.mlp.{name}_proj.weight"] = [cut(0, F), cut(1, D)]
            found[f"{at}.mlp.down_proj.weight"] = [cut(0, D), cut(1, F)]
        return found

    def new_cache(
        self, B: int, S_max: int, *, rollback: int = 0, dtype: torch.dtype | None = None
    ) -> DealtCache:
        """As a Transformer's: this rank's heads of its sequences. ValueError for fewer sequences
        than X."""
        X, rows = self.mesh.x.size, share(B, self.mesh.x.rank, self.mesh.x.size)
        if not rows or X > B:
            raise ValueError(f"{B} sequences cannot be dealt out to {X} ranks along X: give more.")
        kept = (rollback, dtype or self.dtype, self.device)
        return DealtCache(new_cache(self.part_config, len(rows), S_max, *kept), B)

    def __call__(
        self,
        tokens: torch.Tensor,
        cache: DealtCache | None = None,
        *,
        n_new: Counts | None = None,
        at: int | None = None,
    ) -> torch.Tensor:
        """As a Transformer's: logits of all sequences, on every rank."""
        B, T = tokens.shape
        counts, rows = span_counts(n_new, B, T), share(B, self.mesh.x.rank, self.mesh.x.size)
        own = slice(rows.start, rows.stop)
        self._note(step=self._step, phase="prefill" if T > 1 else "decode", layer=None)
        self._step += 1
        inner = None if cache is None else cache.inner
        span = Span.of(len(rows), T, device=self.device)
        if inner is not None:
            span = inner.begin(len(rows), T, counts[own])
        x = self.embed_tokens(tokens) * self.config.embedding_scale  # [B, T, D]
        starts = (0,) * B if cache is None else cache.lengths
        real = Span(starts, counts, T, self.device).real
        if real is not None:
            x = x.masked_fill(~real[..., None], 0.0)
        rest = self.mesh.rests(self.config.D)
        x = x[..., rest.start : rest.stop]  # [B, T, D_XYZ]
        step = Step(span, self._rope(span), inner)
        for layer in range(self.config.L):
            self._note(layer=layer)
            x = x + self._attention(self._norm(x, f"layers.{layer}.input_layernorm"), step, layer)
            x = x + self._mlp(self._norm(x, f"layers.{layer}.post_attention_layernorm"), layer)
        self._note(layer=None)
        x = self._norm(x, "norm")
        if cache is not None and inner is not None:
            inner.commit()
            whole = Span(cache.lengths, counts, T, self.device)
            cache.lengths = tuple(n + m for n, m in zip(cache.lengths, counts, strict=True))
            at = at if at is None else among_real(at, whole)  # type: ignore[assignment]
        return self._logits(x, at)

    def _attention(self, x: torch.Tensor, step: Step, layer: int) -> torch.Tensor:
        """x: [B, T, D_XYZ] → [B, T, D_XYZ]."""
        c, at = self.config, f"layers.{layer}.self_attn"
        B, T, _ = x.shape
        N, K = len(self.heads[0]), len(self.heads[1])
        names = ["q", "k", "v"] if c.source(layer) == layer else ["q"]
        w = torch.cat([self.weights[f"{at}.{name}_proj.weight"] for name in names])
        qkv = functional.linear(
            self._gathered(x), w
        )  # [B, T, (N + 2 K)_YZ · H], summed over X next
        qkv = self.mesh.x.reduce_scatter(qkv, 0)  # [B_X, T, (N + 2 K)_YZ · H]
        heads = qkv.view(len(qkv), T, -1, c.H)  # [B_X, T, heads, H]
        q, *kv = torch.split(heads, [N, K, K] if len(names) == 3 else [N], 2)
        read_later = layer in (c.source(later) for later in range(layer + 1, c.L))
        store = step.keys_values(c.source(layer), read_later)
        if kv:
            store.write(self._turn(kv[0], step, layer), kv[1], step.span)
        window = c.window if c.mixers[layer] == "sliding" else None
        options: dict[str, Any] = {"scale": c.score_scale, "softcap": c.score_cap}
        out = store.attend(self._turn(q, step, layer), step.span, window=window, **options)
        out = out.reshape(len(out), T, N * c.H)  # [B_X, T, N_YZ · H]
        out = self.mesh.x.all_gather(out, 0, sizes(B, self.mesh.x.size))  # [B, T, N_YZ · H]
        made = functional.linear(out, self.weights[f"{at}.o_proj.weight"])  # [B, T, D_X]
        return self.mesh.yz.reduce_scatter(made, -1)

    def _mlp(self, x: torch.Tensor, layer: int) -> torch.Tensor:
        """x: [B, T, D_XYZ] → [B, T, D_XYZ]."""
        at, act = f"layers.{layer}.mlp", ACTIVATIONS[self.config.activation]
        x = self._gathered(x)  # [B, T, D_X]
        names = ("gate", "up") if self.config.gated_mlp else ("up",)
        products = [
            functional.linear(x, self.weights[f"{at}.{name}_proj.weight"]) for name in names
        ]
        summed = self.mesh.x.reduce_scatter(torch.stack(products), -1)  # [1 or 2, B, T, F_XYZ]
        inner = act(summed[0]) if len(names) == 1 else act(summed[0]) * summed[1]
        inner = self.mesh.x.all_gather(inner, -1, self.F_sizes)  # [B, T, F_YZ]
        made = functional.linear(inner, self.weights[f"{at}.down_proj.weight"])  # [B, T, D_X]
        return self.mesh.yz.reduce_scatter(made, -1)

    def _gathered(self, x: torch.Tensor) -> torch.Tensor:
        """[B, T, D_XYZ] → [B, T, D_X]."""
        return self.mesh.yz.all_gather(x, -1, self.D_sizes)

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """RMSNorm of a stream in pieces: its squares are summed over all ranks, in fp32."""
        squares = self.mesh.all.all_reduce(x.float().square().sum(-1, keepdim=True))  # [B, T, 1]
        scale = torch.rsqrt(squares / self.config.D + self.config.norm_eps)
        weight = self.weights[f"{name}.weight"].float() + self.config.norm_offset
        return (x.float() * scale).to(x.dtype) * weight.to(x.dtype)

    def _logits(self, x: torch.Tensor, at: torch.Tensor | int | None) -> torch.Tensor:
        """x: [B, T, D_XYZ] → logits [B, T, V], or [B, V] of the tokens `at`."""
        if isinstance(at, torch.Tensor):
            x = x[torch.arange(len(x), device=self.device), at]  # [B, D_XYZ]
        elif at is not None:
            x = x[:, at]  # [B, D_XYZ]
        D, X, YZ = self.config.D, self.mesh.x.size, self.mesh.yz.size
        rest = [n for wide in sizes(D, X) for n in sizes(wide, YZ)]
        logits = self.lm_head(self.mesh.all.all_gather(x, -1, rest))
        cap = self.config.logit_cap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def _rope(self, span: Span) -> dict[str, Any]:
        c = self.config
        tables = rope_tables(span.positions, c.turned, c.rope_theta, c.rope_scaling)
        local = tables
        if c.local_rope_theta is not None:
            local = rope_tables(span.positions, c.turned, c.local_rope_theta)
        return {"gqa": tables, "sliding": local}

    def _turn(self, heads: torch.Tensor, step: Step, layer: int) -> torch.Tensor:
        tables = step.rope[self.config.mixers[layer]]
        assert tables is not None
        return apply_rope(heads, *tables, pairing=self.config.rope_pairing)

    def _note(self, **place: Any) -> None:
        if isinstance(self.mesh.all, Tracer):
            self.mesh.all.at(**place)


def weight_stationary(
    source: Source,
    comm: Comm,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> WeightStationary:
    """This rank's pieces. ValueError, in one sentence, for a model that is not built of RMSNorms,
    matrices without biases and attention with keys and values."""
    return WeightStationary(source, comm, dtype, device)


def best_x(config: Config, n_ranks: int) -> int:
    """The divisor of n_ranks nearest to the X of least time on two axes."""
    n_in = 2 if config.gated_mlp else 1
    best = float(weight_stationary_best_x(config.D, config.F, n_ranks, 2, n_in))
    divisors = [X for X in range(1, n_ranks + 1) if n_ranks % X == 0]
    return min(divisors, key=lambda X: abs(X - best))


def check_stationary(c: Config) -> None:
    """ValueError for what a model has that this layout does not know."""
    check_keys_and_values(c)
    more = {
        "experts": c.moe,
        "biases": c.qkv_bias or c.o_bias or c.mlp_bias,
        "norms with a mean": c.norm != "rms",
        "norms of heads": c.qk_norm,
        "four norms a layer": c.norms_per_layer == 4,
        "learned positions": c.learned_positions,
        "layers of other widths": c.widths,
    }
    if found := [name for name, value in more.items() if value]:
        raise ValueError(
            f"2D weight-stationary is built here for plain stacks only; this model has {found[0]}:"
            " take --layout tensor."
        )
