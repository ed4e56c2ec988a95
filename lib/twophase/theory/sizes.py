"""The sizes of a transformer as a record that checks itself; what follows from them is in
`architecture`."""

from dataclasses import dataclass

from twophase.theory._domain import is_symbolic
from twophase.theory.compressed_attention import CompressedKeys

LAYER_KINDS = ("full", "sliding", "mla", "chosen", "compressed", "state", "none")
MLP_KINDS = ("dense", "experts", "none")

MAX_LAYERS, MAX_SIZE = 10_000, 10**9


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
class SparseIndex:
    """What chooses the keys that a query of latent attention meets (DeepSeek sparse attention): in
    each of `layers`, `heads` of width `dim` score a key of their own for every position; the
    `top_k` best are attended to, in the layers that follow, too. In layers of kind "chosen"
    (MiniMax M3) they are chosen from keys and values, each layer for itself."""

    heads: int
    dim: int
    top_k: int
    layers: tuple[int, ...]


@dataclass(frozen=True)
class MixtureOfExperts:
    """E experts of width F, k active per token, n_shared more that always are; the first layers may
    stay dense. `bias`: each matrix of an expert has one (gpt-oss). `latent`: the width of what
    routed experts see and give, if it is not D (Nemotron 3)."""

    E: int
    k: int
    F: int
    n_shared: int = 0
    n_dense_layers: int = 0
    router_bias: bool = False
    bias: bool = False
    latent: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.E <= MAX_SIZE:
            raise ValueError(f"k must lie between 1 and E, but k is {self.k} and E is {self.E}.")


@dataclass(frozen=True)
class LayerWidths:
    """What a layer may have less of than its neighbors, once it was pruned: width inside the MLP,
    query heads, KV heads."""

    F: int
    N: int
    K: int


_COUNTS = (
    *("norms_per_layer", "other_params", "other_matmul_params", "learned_positions"),
    *("token_rows", "token_width", "state_values", "state_params", "state_flops"),
)


@dataclass(frozen=True)
class Sizes:
    """Sizes of a decoder-only transformer. Letters as on the notation page; K may be a symbol, for
    a widget that asks what it changes.

    `attention` is one of LAYER_KINDS for all layers, or one per layer; `mlps` one of MLP_KINDS per
    layer, where experts are not simply those after the dense ones. `widths` gives each layer an
    F, N and K of its own (pruned models); F, N and K are then what they were before. `kv_source`
    (cross-layer attention) gives for each layer the layer whose keys and values it uses. `norm`
    "rms" has a weight, "layer" a weight and a bias; each layer has `norms_per_layer` of width D;
    `qk_norm` adds one of width H for queries and one for keys; `sinks` a number per query head that
    softmax counts as one more score, whose weight goes nowhere (gpt-oss). `gated_attention` doubles
    the query projection: half of it is a gate on what attention returns; `other_params` are those
    of no other field (gates, unusual norms), counted with the norms, and of these a token is
    multiplied with `other_matmul_params`. `keys_are_values`: full layers make both with one matrix
    (Gemma 4). `learned_positions` is the number of rows of a position table, 0 with RoPE;
    `token_rows` and `token_width` are those of a second table of which each token takes a row
    (Gemma's per-layer embeddings). `state_values` is what a "state" layer
    keeps per sequence, `state_params` what it weighs, and `state_flops` what a token's step costs
    besides these weights.
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
    sinks: bool = False
    gated_attention: bool = False
    other_params: int = 0
    other_matmul_params: int = 0
    keys_are_values: bool = False
    learned_positions: int = 0
    token_rows: int = 0
    token_width: int = 0
    attention: str | tuple[str, ...] = "full"
    window: int | None = None
    kv_source: tuple[int, ...] | None = None
    mla: LatentAttention | None = None
    index: SparseIndex | None = None
    compressed: CompressedKeys | None = None
    moe: MixtureOfExperts | None = None
    mlps: tuple[str, ...] | None = None
    widths: tuple[LayerWidths, ...] | None = None
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
            if is_symbolic(value) and not value.is_number:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
                raise ValueError(
                    f"{self.name}: {letter} must be a positive integer, but it is {value!r}."
                )
            if value > (MAX_LAYERS if letter == "L" else MAX_SIZE):
                raise ValueError(
                    f"{self.name}: {letter} is {value}, beyond any transformer this package plans"
                    " for."
                )
        if not is_symbolic(self.K) and self.N % self.K:
            raise ValueError(
                f"{self.name}: N must be a multiple of K, but N is {self.N} and K is {self.K}."
            )
        for name in _COUNTS:
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ValueError(
                    f"{self.name}: {name} must be an integer of at least 0, but it is {value!r}."
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
        chosen = [i for i, kind in enumerate(kinds) if kind == "chosen"]
        latents = set(kinds) == {"mla"} and self.mla is not None and self.mla.q_rank is not None
        if (chosen or self.index is not None) and not (
            self.index is not None and (latents or chosen == list(self.index.layers))
        ):
            raise ValueError(
                f"{self.name}: keys are chosen for latents, from a query's own latent, or in the"
                " layers of kind 'chosen', all of which are in `index`."
            )
        if (self.compressed is not None) != ("compressed" in kinds) or (
            self.compressed is not None and len(self.compressed.ratios) != self.L
        ):
            raise ValueError(f"{self.name}: all of its layers need the ratios in `compressed`.")
        if self.mlps is not None and (
            len(self.mlps) != self.L
            or not set(self.mlps) <= set(MLP_KINDS)
            or ("experts" in self.mlps) != (self.moe is not None)
        ):
            raise ValueError(
                f"{self.name}: mlps must name one of {MLP_KINDS} for each of {self.L} layers, and"
                " experts where there are some."
            )
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
        if self.widths is not None:
            self._check_widths(self.widths)

    def _check_widths(self, widths: tuple[LayerWidths, ...]) -> None:
        if len(widths) != self.L:
            raise ValueError(f"{self.name}: widths has {len(widths)} entries for {self.L} layers.")
        sources = self.kv_source or range(self.L)
        for i, (own, kind) in enumerate(zip(widths, self.layer_kinds, strict=True)):
            whole = all(type(size) is int and size > 0 for size in (own.F, own.N, own.K))
            if not whole or own.N % own.K:
                raise ValueError(
                    f"{self.name}: layer {i} needs positive integers F, N and K, N a multiple of"
                    f" K, but it has {own}."
                )
            if self.mlp_kinds[i] == "experts" and own.F != self.F:
                raise ValueError(
                    f"{self.name}: layer {i} has experts, each as wide as `moe` says; its F in"
                    f" widths must stay {self.F}, but it is {own.F}."
                )
            if kind == "state" and own.N != self.N:
                raise ValueError(
                    f"{self.name}: layer {i} has a state, and what states cost is known for"
                    f" {self.N} heads, but it has {own.N}."
                )
            if own.K != widths[sources[i]].K:
                raise ValueError(f"{self.name}: layer {i} reads keys of a layer of other KV heads.")

    @property
    def G(self) -> int:
        """Query heads per KV head."""
        return self.N // self.K

    @property
    def layer_kinds(self) -> tuple[str, ...]:
        """The kind of each layer, first to last."""
        return (self.attention,) * self.L if isinstance(self.attention, str) else self.attention

    @property
    def layer_widths(self) -> tuple[LayerWidths, ...]:
        """F, N and K of each layer, first to last."""
        return self.widths or (LayerWidths(self.F, self.N, self.K),) * self.L

    @property
    def cache_layers(self) -> tuple[tuple[str, int], ...]:
        """Kind and KV heads of each layer that keeps a cache of its own."""
        sources = self.kv_source or range(self.L)
        layers = zip(self.layer_kinds, self.layer_widths, strict=True)
        return tuple((kind, w.K) for i, (kind, w) in enumerate(layers) if sources[i] == i)

    @property
    def bends(self) -> tuple[int, ...]:
        """From how many positions on a layer reads no more than before, the least first: its
        window, or the keys that are chosen; empty if every layer reads all."""
        found = {self.window, self.index and self.index.top_k}
        found |= set(self.compressed.bends if self.compressed else ())
        return tuple(sorted(S for S in found if S))

    @property
    def chooses(self) -> bool:
        """Whether a step leaves some of what caches hold unread."""
        return self.index is not None or self.compressed is not None

    @property
    def n_moe_layers(self) -> int:
        """Layers whose MLP is a mixture of experts."""
        if self.mlps is not None or self.moe is None:
            return (self.mlps or ()).count("experts")
        return self.L - self.moe.n_dense_layers  # asked again and again by a search

    @property
    def mlp_kinds(self) -> tuple[str, ...]:
        """What each layer has after attention, first to last."""
        if self.mlps is not None:
            return self.mlps
        n_dense = self.L if self.moe is None else self.moe.n_dense_layers
        return ("dense",) * n_dense + ("experts",) * (self.L - n_dense)

    @property
    def n_halves(self) -> int:
        """Attentions (or states) and MLPs of all layers: two a layer, where none is missing."""
        missing = self.layer_kinds.count("none") + self.mlp_kinds.count("none")
        return 2 * self.L - missing
