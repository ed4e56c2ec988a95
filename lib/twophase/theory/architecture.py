"""The sizes of a transformer: one frozen record that the planner, the chapters and the models all
read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twophase.theory import params
from twophase.theory._ops import Number, formula, minimum

LAYER_KINDS = ("full", "sliding", "mla", "state")

MAX_LAYERS, MAX_SIZE = 10_000, 10**9

# A state is a running sum, kept in fp32 whatever the weights are in: in bf16 adding ones to it
# stops at 256.
BYTES_PER_STATE = 4


@dataclass(frozen=True)
class LatentAttention:
    """MLA's widths: latent R, rotated part, unrotated part and value part of a head; q_rank None:
    no query latent."""

    R: int
    rope_dim: int
    nope_dim: int
    v_dim: int
    q_rank: int | None = None


@dataclass(frozen=True)
class MixtureOfExperts:
    """E experts of width F, k active per token, n_shared more that always are; the first layers may
    stay dense."""

    E: int
    k: int
    F: int
    n_shared: int = 0
    n_dense_layers: int = 0
    router_bias: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.E <= MAX_SIZE:
            raise ValueError(f"k must lie between 1 and E, but k is {self.k} and E is {self.E}.")


@dataclass(frozen=True)
class Architecture:
    """Sizes of a decoder-only transformer. Letters as on the notation page.

    `attention` is one of LAYER_KINDS for all layers, or one per layer. `kv_source` (cross-layer
    attention) gives for each layer the layer whose keys and values it uses. `norm` "rms" has a
    weight, "layer" a weight and a bias; each layer has `norms_per_layer` of width D; `qk_norm` adds
    one of width H for queries and one for keys. `learned_positions` is the number of rows of a
    position table, 0 with RoPE. `state_values` is what a "state" layer keeps per sequence,
    `state_params` what it weighs, and `state_flops` what a token's step costs besides these
    weights.
    """

    name: str
    L: int
    D: int
    F: int
    N: int
    K: int
    H: int
    V: int
    tied_embeddings: bool = False
    gated_mlp: bool = True
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    norm: str = "rms"
    norms_per_layer: int = 2
    qk_norm: bool = False
    learned_positions: int = 0
    attention: str | tuple[str, ...] = "full"
    window: int | None = None
    kv_source: tuple[int, ...] | None = None
    mla: LatentAttention | None = None
    moe: MixtureOfExperts | None = None
    state_values: int = 0
    state_params: int = 0
    state_flops: int = 0
    max_context: int | None = None
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    activation: str = "silu"

    def __post_init__(self) -> None:
        for letter in "LDFNKHV":
            value = getattr(self, letter)
            if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
                raise ValueError(
                    f"{self.name}: {letter} must be a positive integer, but it is {value!r}."
                )
            if value > (MAX_LAYERS if letter == "L" else MAX_SIZE):
                raise ValueError(
                    f"{self.name}: {letter} is {value}, beyond any transformer this package plans"
                    " for."
                )
        if self.N % self.K:
            raise ValueError(
                f"{self.name}: N must be a multiple of K, but N is {self.N} and K is {self.K}."
            )
        if self.norm not in ("rms", "layer"):
            raise ValueError(
                f"{self.name}: norm must be 'rms' or 'layer', but it is {self.norm!r}."
            )
        self._check_layers()

    def _check_layers(self) -> None:
        kinds = self.layer_kinds
        if len(kinds) != self.L or not set(kinds) <= set(LAYER_KINDS):
            raise ValueError(
                f"{self.name}: attention must name one of {LAYER_KINDS} for each of {self.L}"
                " layers."
            )
        if "sliding" in kinds and not (isinstance(self.window, int) and self.window > 0):
            raise ValueError(
                f"{self.name}: sliding layers need a positive window, but it is {self.window!r}."
            )
        if "mla" in kinds and self.mla is None:
            raise ValueError(f"{self.name}: mla layers need the widths in `mla`.")
        if self.moe is not None and self.moe.n_dense_layers > self.L:
            raise ValueError(
                f"{self.name}: {self.moe.n_dense_layers} dense layers are more than its {self.L}"
                " layers."
            )
        sources = self.kv_source
        if sources is not None and (
            len(sources) != self.L
            or any(not 0 <= s <= i or sources[s] != s for i, s in enumerate(sources))
        ):
            raise ValueError(
                f"{self.name}: kv_source must point each layer to itself or to an earlier owner."
            )

    @property
    def G(self) -> int:
        """Query heads per KV head."""
        return self.N // self.K

    @property
    def layer_kinds(self) -> tuple[str, ...]:
        """The kind of each layer, first to last."""
        return (self.attention,) * self.L if isinstance(self.attention, str) else self.attention

    @property
    def cache_layers(self) -> tuple[str, ...]:
        """The kinds of the layers that keep a cache of their own."""
        if self.kv_source is None:
            return self.layer_kinds
        return tuple(kind for i, kind in enumerate(self.layer_kinds) if self.kv_source[i] == i)

    @property
    def n_moe_layers(self) -> int:
        """Layers whose MLP is a mixture of experts."""
        return 0 if self.moe is None else self.L - self.moe.n_dense_layers

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], name: str | None = None) -> "Architecture":
        """From the content of a Hugging Face config.json. ValueError names a missing key or an
        unknown model type."""
        from twophase.theory.from_hf import read_config

        return read_config(config, name)

    def breakdown(self) -> dict[str, int]:
        """Parameters by part: embedding, positions, attention, mlp, router, norms, head. Biases go
        with their part."""
        from twophase.theory.count import breakdown

        return breakdown(self)

    def n_params(self) -> int:
        """All parameters, a tied head counted once."""
        return sum(self.breakdown().values())

    def n_active_params(self) -> int:
        """Parameters that one token goes through: all but the experts it is not sent to."""
        return self.n_params() - self.n_idle_expert_params()

    def n_idle_expert_params(self) -> int:
        """Parameters of the E - k experts per layer that one token does not visit."""
        return (
            0
            if self.moe is None
            else self.n_moe_layers * (self.moe.E - self.moe.k) * self.n_expert_params()
        )

    def n_expert_params(self) -> int:
        """Parameters of one routed expert; 0 in a dense model."""
        return 0 if self.moe is None else int(params.mlp_params(self.D, self.moe.F, self.gated_mlp))

    def n_matmul_params(self) -> int:
        """Weights that one token is multiplied with, the head included: its FLOPs are twice this,
        plus attention's.

        Embedding rows are looked up, norms and biases are elementwise; none of them counts.
        """
        from twophase.theory.count import matmul_params

        return matmul_params(self)

    def prefill_flops(self, B: Number, T: Number, head_at_last_only: bool = False) -> Number:
        """FLOPs of B prompts of T tokens under a causal mask, each layer by its kind."""
        from twophase.theory.model_flops import prefill_flops

        return prefill_flops(self, B, T, head_at_last_only)

    def decode_step_flops(self, B: Number, S: Number) -> Number:
        """FLOPs of one token for each of B sequences, S keys each, the new one included; MLA in its
        absorbed form."""
        from twophase.theory.model_flops import decode_step_flops

        return decode_step_flops(self, B, S)

    def cache_bytes(self, S: Number, bytes_per_kv: Number = 2) -> Number:
        """Cache bytes of one sequence of S positions, each layer by its kind. S may be an array or
        a symbol.

        `bytes_per_kv` is for keys, values and latents; states take 4 bytes per number.
        """
        return _cache_bytes(self, S, bytes_per_kv)

    def cache_bytes_per_token(self, bytes_per_kv: Number = 2) -> Number:
        """Cache bytes that the next position costs while every window still grows."""
        return _cache_bytes(self, 1, bytes_per_kv) - _cache_bytes(self, 0, bytes_per_kv)


@formula(zero_ok=("S",))
def _cache_bytes(arch: Architecture, S: Number, bytes_per_kv: Number) -> Number:
    total: Number = 0
    for kind in LAYER_KINDS:
        count = arch.cache_layers.count(kind)
        if count:
            bytes_per_value = BYTES_PER_STATE if kind == "state" else bytes_per_kv
            total = total + count * _layer_cache_values(arch, kind, S) * bytes_per_value
    return total


def _layer_cache_values(arch: Architecture, kind: str, S: Number) -> Number:
    if kind == "state":
        return arch.state_values
    if kind == "mla" and arch.mla is not None:
        return S * (arch.mla.R + arch.mla.rope_dim)
    positions = minimum(S, arch.window) if kind == "sliding" else S
    return positions * 2 * arch.K * arch.H
