"""One chip's part of a model that n chips share: itself a smaller model, so that what is copied is
counted as often as it is stored.

Tensor parallelism as engines do it (Megatron-LM, vLLM): heads, MLP columns (of every expert, too)
and vocabulary rows are divided; norms, routers and MLA's projections into latents are on every
chip. Where a division leaves a rest, the fullest chip is counted: the others wait for it.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from twophase.theory._domain import SOME, Number
from twophase.theory._ops import ceil_div, minimum
from twophase.theory.architecture import Architecture
from twophase.theory.grouped_query_attention import kv_heads_per_chip
from twophase.theory.sizes import LayerWidths


def heads_per_chip(N: int, K: int, n_chips: int) -> tuple[int, int]:
    """Query and KV heads of the fullest chip. A KV head stays with its queries; with more chips
    than KV heads each is copied, and its queries are divided. ValueError for no whole numbers."""
    SOME.check("N", N)
    held = kv_heads_per_chip(K, n_chips)
    if n_chips <= K:
        return N // K * held, held
    return ceil_div(N // K, n_chips // K), held


def heads_of_chip(rank: int, n_chips: int, N: int, K: int) -> tuple[range, range]:
    """The query heads and the KV heads of chip number `rank`, where all divides evenly: every query
    head beside the KV head that it reads, which is copied where there are more chips than KV heads.

    ValueError unless n_chips and K divide N, and one of n_chips and K divides the other.
    """
    if min(n_chips, N, K) < 1 or N % K:
        raise ValueError(
            f"there must be chips, and N a multiple of K, but there are {n_chips} chips, N is {N}"
            f" and K is {K}."
        )
    if N % n_chips or (K % n_chips and n_chips % K):
        raise ValueError(
            f"{N} query heads and {K} KV heads do not divide evenly over {n_chips} chips: take a"
            f" number of chips that divides {N}, and that {K} divides or is divided by."
        )
    if not 0 <= rank < n_chips:
        raise ValueError(f"{n_chips} chips are numbered from 0 to {n_chips - 1}; got {rank}.")
    queries, held = N // n_chips, kv_heads_per_chip(K, n_chips)
    first = rank * K // n_chips
    return range(rank * queries, (rank + 1) * queries), range(first, first + held)


def chip_part(arch: Architecture, n_chips: int) -> Architecture:
    """What the fullest of n chips stores and computes, as an architecture."""
    if n_chips == 1:
        return arch

    def part(whole: LayerWidths) -> LayerWidths:
        N, K = heads_per_chip(whole.N, whole.K, n_chips)
        return LayerWidths(ceil_div(whole.F, n_chips), N, K)

    usual = part(LayerWidths(arch.F, arch.N, arch.K))
    moe = arch.moe and replace(arch.moe, F=ceil_div(arch.moe.F, n_chips))
    states = ("state_values", "state_params", "state_flops")
    return replace(
        arch,
        N=usual.N,
        K=usual.K,
        F=usual.F,
        widths=arch.widths and tuple(map(part, arch.widths)),
        V=ceil_div(arch.V, n_chips),
        token_rows=ceil_div(arch.token_rows, n_chips),
        moe=moe,
        **{name: ceil_div(getattr(arch, name), n_chips) for name in states},
    )


@dataclass(frozen=True)
class Stage:
    """A chip's layers in a pipeline, as an architecture of their own. The first stage embeds, the
    last has the final norm and the head; a tied embedding is on both."""

    arch: Architecture
    first: bool
    last: bool

    def stored(self) -> dict[str, Number]:
        """Parameters by part, as `Architecture.breakdown` has them."""
        return self._own(dict(self.arch.breakdown()))

    def read(self, n_tokens: Number) -> dict[str, Number]:
        """Those that a step of so many tokens reads: of an embedding that is not the head, rows."""
        parts = self._own(self.arch.step_breakdown(n_tokens))
        if self.first and not self.last:
            parts["embedding"] = minimum(n_tokens, self.arch.V) * self.arch.D
        return parts

    def _own(self, parts: dict[str, Number]) -> dict[str, Number]:
        a = self.arch
        if not self.first:
            parts["positions"] = 0
            if not (self.last and a.tied_embeddings):
                parts["embedding"] = 0
        if not self.last:
            parts["head"] = 0
            parts["norms"] = parts["norms"] - a.D * (2 if a.norm == "layer" else 1)
        return parts


@lru_cache(maxsize=256)
def stages(arch: Architecture, n_stages: int) -> tuple[Stage, ...]:
    """The stages of a pipeline: layers dealt out one after the other, the first L % n_stages stages
    one more. ValueError for more stages than layers, and where a layer would read the keys of
    another stage's."""
    if n_stages > arch.L:
        raise ValueError(
            f"{arch.name} has {arch.L} layers: a pipeline of {n_stages:,} stages has none for some;"
            f" take at most {arch.L} chips, or another layout."
        )
    each, more = divmod(arch.L, n_stages)
    ends = [(i + 1) * each + min(i + 1, more) for i in range(n_stages)]
    return tuple(
        Stage(some_layers(arch, start, end), start == 0, end == arch.L)
        for start, end in zip([0, *ends], ends, strict=False)
    )


def some_layers(arch: Architecture, start: int, end: int) -> Architecture:
    """The layers from number `start` to before `end` as an architecture. ValueError where one of
    them reads the keys of an earlier layer, or there are none."""
    if not (type(start) is type(end) is int and 0 <= start < end <= arch.L):
        raise ValueError(
            f"{arch.name} has layers 0 to {arch.L - 1}; none are from {start!r} to before {end!r}."
        )
    sources = arch.kv_source and arch.kv_source[start:end]
    if sources and min(sources) < start:
        raise ValueError(
            f"layers {start} to {end - 1} of {arch.name} read the keys of layer {min(sources)},"
            " which would be in another stage: take fewer chips, or another layout."
        )
    index = arch.index
    if index is not None:
        own = tuple(layer - start for layer in index.layers if start <= layer < end)
        index = replace(index, layers=own)
    moe, mlps = arch.moe, arch.mlps and arch.mlps[start:end]
    if mlps and "experts" not in mlps:
        moe = None
    elif moe is not None:
        dense = min(max(moe.n_dense_layers - start, 0), end - start)
        moe = replace(moe, n_dense_layers=dense)
    compressed = arch.compressed and arch.compressed.of_layers(start, end)
    return replace(
        arch,
        L=end - start,
        other_params=arch.other_params * (end - start) // arch.L,
        other_matmul_params=arch.other_matmul_params * (end - start) // arch.L,
        attention=arch.attention if isinstance(arch.attention, str) else arch.attention[start:end],
        widths=arch.widths and arch.widths[start:end],
        kv_source=sources and tuple(source - start for source in sources),
        index=index,
        compressed=compressed,
        moe=moe,
        mlps=mlps,
    )


def uneven_cuts(arch: Architecture, n_chips: int, split_cache: str) -> list[str]:
    """What cannot be divided over so many chips, in sentences; empty if all divides evenly.
    ValueError for a cache that is split neither by "heads" nor "evenly"."""
    if split_cache not in ("heads", "evenly"):
        raise ValueError(f"a cache is split by 'heads' or 'evenly', not {split_cache!r}.")
    lines = []
    keeps_keys = {"full", "sliding", "chosen"} & set(arch.layer_kinds)
    for whole_N, whole_K in dict.fromkeys((w.N, w.K) for w in arch.layer_widths):
        N, K = heads_per_chip(whole_N, whole_K, n_chips)
        if n_chips * N != whole_N:
            lines.append(
                f"{whole_N} query heads in {whole_K} groups cannot be divided evenly over"
                f" {n_chips:,} chips: the fullest has {N}, and the others wait for it"
            )
        if keeps_keys and split_cache == "heads" and n_chips * K != whole_K:
            lines.append(
                f"{whole_K} KV heads over {n_chips:,} chips: the fullest keeps {K},"
                f" {K / whole_K:.1%} of the cache where an even cut gives {1 / n_chips:.1%};"
                " --split-cache evenly cuts by position or sequence"
            )
    if {"mla", "compressed"} & set(arch.layer_kinds) and split_cache == "heads" and n_chips > 1:
        lines.append(
            "the latent has no heads to divide: every chip keeps the whole cache; --split-cache"
            " evenly cuts by position or sequence (data-parallel attention)"
        )
    return lines
