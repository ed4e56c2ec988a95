"""A transformer's sizes with what follows from them: parameters, cache bytes, FLOPs.

The planner, the chapters and the models all read this one record. Its formulas are those of the
rooms below, layer kind by layer kind.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from twophase.theory import count, hugging_face, kv_cache
from twophase.theory._domain import Number, formula
from twophase.theory._ops import minimum, where
from twophase.theory.arithmetic_intensity import (
    attention_pairs,
    critical_batch_of_step,
    window_pairs,
)
from twophase.theory.latent_attention import absorbed_flops_per_pair, expanded_flops_per_pair
from twophase.theory.mixture_of_experts import expected_experts
from twophase.theory.sizes import LAYER_KINDS, Sizes
from twophase.theory.two_phases import forward_flops

KEEP_KEYS = ("full", "chosen", "sliding")


@dataclass(frozen=True)
class Architecture(Sizes):
    """`Sizes` that can be asked. Letters as on the notation page."""

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], name: str | None = None) -> "Architecture":
        """From the content of a Hugging Face config.json. ValueError names a missing key or an
        unknown model type."""
        sizes = hugging_face.config_sizes(config)
        return cls(name=name or hugging_face.config_name(config), **sizes)

    def with_kv_heads(self, K: int) -> "Architecture":
        """The same model with K key-value heads, which may be a symbol. ValueError unless K divides
        N, and where layers differ."""
        if self.widths is not None:
            raise ValueError(f"{self.name}: its layers have numbers of KV heads of their own.")
        return replace(self, name=f"{self.name} with K = {K}", K=K)

    def breakdown(self) -> dict[str, int]:
        """Parameters by part: embedding, positions (and any other table that tokens take rows of),
        attention, mlp, router, norms, head. Biases go with their part."""
        return count.breakdown(self)

    def n_params(self) -> int:
        """All parameters, a tied head counted once."""
        return sum(self.breakdown().values())

    def n_active_params(self) -> int:
        """Parameters that one token goes through: all but the experts it is not sent to."""
        return self.n_params() - self.n_idle_expert_params()

    def n_idle_expert_params(self) -> int:
        """Parameters of the E - k experts per layer that one token does not visit."""
        if self.moe is None:
            return 0
        return self.n_moe_layers * (self.moe.E - self.moe.k) * self.n_expert_params()

    def n_expert_params(self) -> int:
        """Parameters of one routed expert; 0 in a dense model."""
        return count.expert_params(self)

    def n_matmul_params(self) -> int:
        """Weights that one token is multiplied with, the head included: its FLOPs are twice this,
        plus attention's.

        Embedding rows are looked up, norms and biases are elementwise; none of them counts.
        """
        return count.matmul_params(self)

    @formula()
    def step_breakdown(self, B: Number) -> dict[str, Number]:
        """Parameters that a step of B tokens reads, by part as in `breakdown`.

        Everything once, except: an untied embedding and a table of positions give a row per token
        (a tied embedding is read whole, as the head), and of the experts only those that B tokens
        touch are read, on average (`expected_experts`).
        """
        parts: dict[str, Number] = dict(self.breakdown())
        if not self.tied_embeddings:
            parts["embedding"] = minimum(B, self.V) * self.D
        if self.learned_positions or self.token_rows:
            rows = minimum(B, self.learned_positions) * self.D
            parts["positions"] = rows + minimum(B, self.token_rows) * self.token_width
        if self.moe is not None:
            untouched = self.moe.E - expected_experts(B, self.moe.E, self.moe.k)
            parts["mlp"] = parts["mlp"] - self.n_moe_layers * untouched * self.n_expert_params()
        return parts

    @formula()
    def step_weight_bytes(self, B: Number, bytes_per_param: Number = 2) -> Number:
        """Bytes of the weights that a step of B tokens reads, all in one format."""
        return kv_cache.weight_bytes(sum(self.step_breakdown(B).values()), bytes_per_param)

    @formula()
    def prefill_flops(self, B: Number, T: Number, head_at_last_only: bool = False) -> Number:
        """FLOPs of B prompts of T tokens under a causal mask, each layer by its kind."""
        total = forward_flops(T, self.n_matmul_params())
        if head_at_last_only:
            total = total - forward_flops(1, self.V * self.D) * (T - 1)
        total = total + T * self.layer_kinds.count("state") * self.state_flops
        if self.compressed is not None:
            total = total + self.compressed.prefill_flops(T, self.N, self.H)
        for kind, N, n_layers in self._attention_layers():
            pairs = attention_pairs(T, T, causal=True)
            bend = self._bend_of(kind)
            if bend is not None:
                pairs = window_pairs(T, bend)
            total = total + n_layers * pairs * self._flops_per_pair(kind, N)
        return B * (total + self._choosing_flops(attention_pairs(T, T, causal=True)))

    @formula()
    def decode_step_flops(self, B: Number, S: Number) -> Number:
        """FLOPs of one token for each of B sequences, S keys each, the new one included; MLA in its
        absorbed form."""
        total = forward_flops(1, self.n_matmul_params())
        total = total + self.layer_kinds.count("state") * self.state_flops
        if self.compressed is not None:
            total = total + self.compressed.decode_flops(S, self.N, self.H)
        for kind, N, n_layers in self._attention_layers():
            bend = self._bend_of(kind)
            keys = S if bend is None else minimum(S, bend)
            total = total + n_layers * keys * self._flops_per_pair(kind, N, absorbed=True)
        return B * (total + self._choosing_flops(S))

    def _bend_of(self, kind: str) -> int | None:
        """From how many keys on a query of such a layer meets no more; None if it meets all."""
        if kind == "sliding":
            return self.window
        chooses = kind in ("mla", "chosen") and self.index is not None
        return self.index.top_k if chooses and self.index is not None else None

    def _choosing_flops(self, pairs: Number) -> Number:
        """What choosing keys costs for so many pairs of a query and a key: a score a head."""
        if self.index is None:
            return 0
        return len(self.index.layers) * pairs * 2 * self.index.heads * self.index.dim

    @formula()
    def critical_batch_of_step(
        self,
        S: Number,
        flops_per_s: Number,
        bytes_per_s: Number,
        bytes_per_param: Number = 2,
        bytes_per_kv: Number = 2,
    ) -> Number:
        """Sequences of S keys at which computing a whole decode step takes as long as reading it;
        infinite if no batch is enough. The planner's critical batch is the next whole number.

        A sequence brings its cache and, up to V of them, a row of an untied embedding. ValueError
        for experts, of which a larger batch reads more, and for a table of positions.
        """
        if self.moe is not None or self.learned_positions or self.token_rows:
            raise ValueError(f"{self.name}: the bytes of its step are no straight line in B.")
        row = 0 if self.tied_embeddings else kv_cache.weight_bytes(self.D, bytes_per_param)
        weights = self.step_weight_bytes(1, bytes_per_param) - row
        cache, flops = self.cache_bytes(S, bytes_per_kv), self.decode_step_flops(1, S)
        rates = flops_per_s, bytes_per_s
        by_rows = critical_batch_of_step(weights, cache + row, flops, *rates)
        whole_table = critical_batch_of_step(weights + self.V * row, cache, flops, *rates)
        return where(by_rows <= self.V, by_rows, whole_table)

    def _attention_layers(self) -> list[tuple[str, int, int]]:
        """The layers whose queries meet keys: kind, query heads, and how many are like that."""
        alike = Counter(zip(self.layer_kinds, (w.N for w in self.layer_widths), strict=True))
        order = [kind for kind in LAYER_KINDS if kind not in ("compressed", "state", "none")]
        return [(kind, N, n) for known in order for (kind, N), n in alike.items() if kind == known]

    def _flops_per_pair(self, kind: str, N: int, absorbed: bool = False) -> int:
        """Score and weighted value. Absorbed MLA scores against the latent and sums latents, for
        each of N heads."""
        if kind == "mla" and self.mla is not None:
            m = self.mla
            if absorbed:
                return int(absorbed_flops_per_pair(N, m.R, m.rope_dim))
            return int(expanded_flops_per_pair(N, m.nope_dim, m.rope_dim, m.v_dim))
        return 4 * N * self.H

    @formula(zero_ok=("S",))
    def cache_bytes(self, S: Number, bytes_per_kv: Number = 2) -> Number:
        """Cache bytes of one sequence of S positions, each layer by its kind. S may be an array or
        a symbol.

        `bytes_per_kv` is for keys, values and latents; states take 4 bytes per number.
        """
        layers = self.cache_layers
        kinds = [kind for kind, _ in layers]
        latent, state = kinds.count("mla"), kinds.count("state")
        total = state * self.state_values * kv_cache.BYTES_PER_STATE
        for K in dict.fromkeys(K for kind, K in layers if kind in KEEP_KEYS):
            full, chosen, sliding = (layers.count((kind, K)) for kind in KEEP_KEYS)
            total = total + kv_cache.hybrid_bytes_per_sequence(
                S, full + chosen, sliding, self.window or 1, K, self.H, bytes_per_kv
            )
        if self.compressed is not None:
            total = total + self.compressed.kept_values(S, self.H) * bytes_per_kv
        if latent and self.mla is not None:
            total = total + kv_cache.latent_bytes_per_sequence(
                S, latent, self.mla.R, self.mla.rope_dim, bytes_per_kv
            )
        if self.index is not None:
            total = total + S * len(self.index.layers) * self.index.dim * bytes_per_kv
        return total

    @formula(zero_ok=("S",))
    def cache_read_bytes(self, S: Number, bytes_per_kv: Number = 2) -> Number:
        """What a step reads of that cache: all of it, but where keys are chosen the latents of
        those alone, beside the keys that are chosen by."""
        kept = self.cache_bytes(S, bytes_per_kv)
        if self.compressed is not None:
            unread = self.compressed.kept_values(S, self.H) - self.compressed.met_values(S, self.H)
            return kept - unread * bytes_per_kv
        if self.index is None:
            return kept
        wide = (
            kind in ("mla", "chosen") and self._position_values(kind, K)
            for kind, K in self.cache_layers
        )
        return kept - (S - minimum(S, self.index.top_k)) * sum(wide) * bytes_per_kv

    def _position_values(self, kind: str, K: int) -> int:
        """Numbers that such a layer keeps of a position."""
        if kind == "mla" and self.mla is not None:
            return self.mla.R + self.mla.rope_dim
        return 2 * K * self.H

    def cache_bytes_per_token(self, bytes_per_kv: Number = 2) -> Number:
        """Cache bytes that the next position costs while every window still grows: in a model whose
        layers all keep keys and values of their own, `kv_cache.kv_bytes_per_token`."""
        return self.cache_bytes(1, bytes_per_kv) - self.cache_bytes(0, bytes_per_kv)
