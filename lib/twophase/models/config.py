"""The shape of a model: one `Config` says everything that `Transformer` builds.

Sizes carry the letters of the notation page. What is not a size says what one family of models does
differently from Llama, and is off by default.
"""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from twophase.kernels.mlp import ACTIVATIONS
from twophase.kernels.rope import RopeScaling
from twophase.models.layer_sizes import (
    LinearAttention,
    Routing,
    StateSpace,
    layer_widths,
    state_costs,
)
from twophase.theory.architecture import Architecture
from twophase.theory.sizes import LatentAttention, LayerWidths, MixtureOfExperts

# How our kinds of layers are called by the theory, which counts their parameters and cache bytes.
MIXERS = {"gqa": "full", "sliding": "sliding", "mla": "mla", "linear": "state", "ssm": "state"}


@dataclass(frozen=True)
class Config:
    """The shape of a model, in the letters of the notation page. Raises ValueError where the shape
    is impossible."""

    L: int  # layers
    D: int  # width of the residual stream
    F: int  # width inside the gated MLP
    N: int  # query heads
    K: int  # KV heads: K = N is multi-head, K = 1 multi-query, between them grouped-query attention
    H: int  # width of a head; N·H need not be D
    V: int = 256  # vocabulary: one token per byte
    rope_theta: float = 10_000.0  # base of the RoPE frequencies
    rope_pairing: str = "half"  # how RoPE pairs numbers: "half" or "interleaved"
    norm_eps: float = 1e-6
    tied: bool = True  # the output matrix is the embedding
    context: int = 256  # tokens per training sequence; longer runs work, but were not trained
    attention: str | tuple[str, ...] = "gqa"  # the kind of every layer, or one for each: see MIXERS
    # Kinds of layers.
    window: int | None = None  # keys that a query of a "sliding" layer sees, its own included
    kv_source: tuple[int, ...] | None = None  # the layer whose keys and values each one reads
    mla: LatentAttention | None = None
    linear: LinearAttention | None = None
    ssm: StateSpace | None = None
    moe: MixtureOfExperts | None = None
    routing: Routing = Routing()  # noqa: RUF009 (a frozen record, and `to_dict` asks for it)
    widths: tuple[LayerWidths, ...] | None = None  # F, N, K of each layer, where layers differ
    causal: bool = True  # False: every token sees every other (masked diffusion)
    # What some families do differently.
    rope_scaling: RopeScaling | None = None
    rotary_dim: int | None = None  # RoPE turns the first so many numbers of a head; None: all
    local_rope_theta: float | None = None  # another base of "sliding" layers, unscaled (Gemma 3)
    learned_positions: int = 0  # rows of a table of positions, in place of RoPE (GPT-2, GPT-3)
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False  # queries and keys are normalized per head, before RoPE (Qwen3, Gemma 3)
    norm: str = "rms"  # "layer": with a mean and a bias (GPT)
    norm_offset: float = 0.0  # a norm multiplies by weight + offset; Gemma stores weight − 1
    norms_per_layer: int = 2  # 4: what attention and MLP add is normalized as well (Gemma)
    gated_mlp: bool = True
    activation: str = "silu"  # or "gelu_tanh", "gelu", "relu"
    embedding_scale: float = 1.0  # Gemma multiplies embeddings by sqrt(D)
    score_scale: float | None = None  # attention scores are multiplied by this; None: 1/sqrt(H)
    score_cap: float | None = None  # scores become cap·tanh(score/cap) (Gemma 2)
    logit_cap: float | None = None  # the same for logits

    def __post_init__(self) -> None:
        self._from_plain_data()
        sizes = (self.L, self.D, self.F, self.N, self.K, self.H, self.V)
        if any(isinstance(n, bool) or not hasattr(n, "__index__") or n < 1 for n in sizes):
            raise ValueError(
                f"every size of a model must be at least 1, a whole number; got {self}."
            )
        if self.N % self.K:
            raise ValueError(
                f"the {self.N} query heads cannot be shared evenly among {self.K} KV heads."
            )
        if not self.learned_positions and self.turned % 2:
            raise ValueError(
                f"RoPE turns pairs of numbers, so the head width must be even; it is {self.turned}."
            )
        if not 0 < self.turned <= self.H:
            raise ValueError(
                f"RoPE turns between 2 and all {self.H} numbers of a head; got {self.turned}."
            )
        self._check_settings()
        self._check_layers()

    def _check_settings(self) -> None:
        allowed = {
            "rope_pairing": ("half", "interleaved"),
            "norm": ("rms", "layer"),
            "norms_per_layer": (2, 4),
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise ValueError(
                    f"{name} is one of {', '.join(map(str, values))}; got {getattr(self, name)!r}."
                )
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f'unknown activation "{self.activation}"; known: {", ".join(ACTIVATIONS)}.'
            )
        for name in ("rope_theta", "norm_eps", "context", "embedding_scale"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive; got {getattr(self, name)!r}.")
        for name in ("score_scale", "score_cap", "logit_cap"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, or None; got {getattr(self, name)!r}.")
        if self.learned_positions < 0:
            raise ValueError(
                f"learned_positions counts the rows of a table; got {self.learned_positions}."
            )

    def _check_layers(self) -> None:
        if unknown := [kind for kind in self.mixers if kind not in MIXERS]:
            raise ValueError(f'unknown attention kind "{unknown[0]}"; known: {", ".join(MIXERS)}.')
        if len(self.mixers) != self.L:
            raise ValueError(f"`attention` names {len(self.mixers)} kinds for {self.L} layers.")
        needs = {"sliding": self.window, "mla": self.mla, "linear": self.linear, "ssm": self.ssm}
        for kind, value in needs.items():
            if kind in self.mixers and not value:
                name = "window" if kind == "sliding" else kind
                raise ValueError(f'layers of the kind "{kind}" need `{name}`; it is {value!r}.')
        if not self.causal and set(self.mixers) != {"gqa"}:
            raise ValueError('only layers of the kind "gqa" can read both ways (`causal=False`).')
        if self.widths is None:
            self.architecture()  # raises where the theory knows better
        elif len(self.widths) != self.L:
            raise ValueError(f"`widths` has {len(self.widths)} entries for {self.L} layers.")
        for layer in range(self.L):
            source = self.source(layer)
            if source != layer and self.mixers[layer] in ("linear", "ssm"):
                raise ValueError(f"layer {layer} has a state of its own, and no keys to share.")
            if self.mixers[layer] != self.mixers[source]:
                raise ValueError(f"layer {layer} cannot read the keys of a layer of another kind.")
            own = self.at(layer)
            if own.K != self.at(source).K:
                raise ValueError(f"layer {layer} cannot read the keys of other KV heads.")
            if own.F != self.F and self.is_moe(layer):
                raise ValueError(
                    f"layer {layer} is a mixture of experts, as wide as `moe` says: its F stays"
                    f" {self.F}; got {own.F}."
                )

    def _from_plain_data(self) -> None:
        """A model card holds lists and dicts where a Config holds tuples and records."""
        records = {
            "mla": LatentAttention,
            "linear": LinearAttention,
            "ssm": StateSpace,
            "moe": MixtureOfExperts,
            "routing": Routing,
            "rope_scaling": RopeScaling,
        }
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, list):
                object.__setattr__(self, field.name, tuple(value))
            if isinstance(value, dict):
                object.__setattr__(self, field.name, records[field.name](**value))
        if self.widths is not None:
            object.__setattr__(self, "widths", layer_widths(self.widths))

    @property
    def G(self) -> int:
        """Query heads per KV head."""
        return self.N // self.K

    @property
    def mixers(self) -> tuple[str, ...]:
        """The kind of each layer, first to last."""
        return (self.attention,) * self.L if isinstance(self.attention, str) else self.attention

    @property
    def turned(self) -> int:
        """Numbers of a head that RoPE turns."""
        if self.rotary_dim is not None:
            return self.rotary_dim
        return self.mla.rope_dim if self.mla else self.H

    def source(self, layer: int) -> int:
        """The layer whose keys and values this one reads: itself, but for cross-layer sharing."""
        return layer if self.kv_source is None else self.kv_source[layer]

    def at(self, layer: int) -> "Config":
        """The config as this layer sees it: with its own F, N and K."""
        if self.widths is None:
            return self
        return replace(self, widths=None, **asdict(self.widths[layer]))

    def is_moe(self, layer: int) -> bool:
        """Whether the MLP of this layer is a mixture of experts."""
        return self.moe is not None and layer >= self.moe.n_dense_layers

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for a model card: the sizes, and whatever else is not the default."""
        return {
            name: value
            for name, value in asdict(self).items()
            if name in ALWAYS or getattr(self, name) != getattr(Config, name)
        }

    def architecture(self, name: str = "") -> Architecture:
        """The same sizes as the record that `twophase.theory` computes with. ValueError for
        `widths` that it does not count: a layer with a state that lost heads."""
        kinds = tuple(MIXERS[kind] for kind in self.mixers)
        return Architecture(
            name=name or "config",
            **{letter: getattr(self, letter) for letter in "LDFNKHV"},
            **{key: getattr(self, key) for key in SAME_NAME},
            tied_embeddings=self.tied,
            attention=kinds[0] if len(set(kinds)) == 1 else kinds,
            **state_costs(self._state_layer(), self.D, self.N, self.H),
            max_context=self.context,
        )

    def _state_layer(self) -> LinearAttention | StateSpace | None:
        """The sizes of the layers with a state; a stack has layers of one such kind at most."""
        if "ssm" in self.mixers:
            return self.ssm
        return self.linear if "linear" in self.mixers else None

    @classmethod
    def from_architecture(cls, arch: Architecture, **more: Any) -> "Config":
        """A config with the sizes of `arch`; what an Architecture does not say comes from `more`.
        ValueError for sinks and experts with biases or a width of their own inputs, which are
        counted only."""
        if arch.sinks or (arch.moe is not None and (arch.moe.bias or arch.moe.latent)):
            raise ValueError(
                f"{arch.name} is counted, but cannot be built here: it has sinks, or experts with"
                " biases or with latent inputs."
            )
        names = {theory: ours for ours, theory in MIXERS.items() if theory != "state"}
        kinds = tuple(names[kind] for kind in arch.layer_kinds)
        sizes = {
            **{letter: getattr(arch, letter) for letter in "LDFNKHV"},
            **{key: getattr(arch, key) for key in SAME_NAME},
            "tied": arch.tied_embeddings,
            "attention": kinds[0] if len(set(kinds)) == 1 else kinds,
            "context": arch.max_context or 256,
        }
        return cls(**(sizes | more))


# What a model card says even where it is the default.
ALWAYS = ("L", "D", "F", "N", "K", "H", "V", "rope_theta", "rope_pairing", "norm_eps", "tied", "context", "attention")  # fmt: skip
# Fields that an Architecture has under the same name.
SAME_NAME = (
    "gated_mlp", "qkv_bias", "o_bias", "mlp_bias", "norm", "norms_per_layer", "qk_norm", "learned_positions", "window",
    "kv_source", "mla", "moe", "widths", "rope_theta", "norm_eps", "activation",
)  # fmt: skip
