"""Parameter counts of a transformer's `Sizes`, exact to the parameter, split by part."""

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from twophase.theory.params import (
    attention_params,
    embedding_params,
    latent_attention_params,
    mlp_params,
)
from twophase.theory.sizes import Sizes


def breakdown(sizes: Sizes) -> dict[str, int]:
    """Parameters by part; see `Architecture.breakdown`."""
    return dict(_parts(sizes))


@lru_cache(maxsize=1024)
def _parts(sizes: Sizes) -> tuple[tuple[str, int], ...]:
    norm_width = sizes.D * (2 if sizes.norm == "layer" else 1)
    layers = _layers(sizes)
    parts: dict[str, int] = {
        "embedding": embedding_params(sizes.V, sizes.D),
        "positions": sizes.learned_positions * sizes.D + sizes.token_rows * sizes.token_width,
        "attention": sum(n * _attention(sizes, layer) for layer, n in layers) + _index(sizes),
        "mlp": sum(n * _mlp(sizes, layer) for layer, n in layers),
        "router": _routers(sizes),
        "norms": (
            (sizes.n_halves * sizes.norms_per_layer // 2 + 1) * norm_width
            + sum(n * _inner_norms(sizes, layer) for layer, n in layers)
            + sizes.other_params
        ),
        "head": 0 if sizes.tied_embeddings else embedding_params(sizes.V, sizes.D),
    }
    return tuple(parts.items())


@lru_cache(maxsize=1024)
def matmul_params(sizes: Sizes) -> int:
    """Weights that one token is multiplied with; see `Architecture.n_matmul_params`."""
    total: int = embedding_params(sizes.V, sizes.D)  # the head, tied or not
    total += sizes.other_matmul_params + _index(sizes, norms=False)
    for layer, n in _layers(sizes):
        total += n * _attention(sizes, layer, biases=False)
        if layer.mlp == "experts" and sizes.moe is not None:
            moe = sizes.moe
            visited = moe.k * expert_params(sizes, biases=False) + _beside_experts(sizes, False)
            total += n * (visited + sizes.D * moe.E)
        elif layer.mlp == "dense":
            total += n * mlp_params(sizes.D, layer.F, sizes.gated_mlp)
    return total


def expert_params(sizes: Sizes, biases: bool = True) -> int:
    """Parameters of one routed expert; 0 in a dense model."""
    if sizes.moe is None:
        return 0
    params: int = mlp_params(sizes.moe.latent or sizes.D, sizes.moe.F, sizes.gated_mlp)
    return params + _mlp_biases(sizes, sizes.moe.F) * (sizes.moe.bias and biases)


def _beside_experts(sizes: Sizes, biases: bool = True) -> int:
    """What every token visits in a layer with experts: the shared ones, and the ways into and out
    of the width that the others see."""
    if sizes.moe is None:
        return 0
    shared = replace(sizes.moe, latent=None)
    each = expert_params(replace(sizes, moe=shared), biases)
    return sizes.moe.n_shared * each + 2 * sizes.D * (sizes.moe.latent or 0)


class _Layer(NamedTuple):
    """What the parameters of a layer depend on."""

    kind: str
    owns_kv: bool
    mlp: str
    F: int
    N: int
    K: int
    ratio: int


def _layers(sizes: Sizes) -> list[tuple[_Layer, int]]:
    """The different layers, each with how many there are."""
    sources = sizes.kv_source or range(sizes.L)
    kinds = sizes.layer_kinds, sizes.mlp_kinds
    ratios = sizes.compressed.ratios if sizes.compressed else (0,) * sizes.L
    each = zip(range(sizes.L), *kinds, sources, sizes.layer_widths, ratios, strict=True)
    alike = (_Layer(k, source == i, mlp, w.F, w.N, w.K, r) for i, k, mlp, source, w, r in each)
    return list(Counter(alike).items())


def _attention(sizes: Sizes, layer: _Layer, biases: bool = True) -> int:
    if layer.kind in ("state", "none"):
        return sizes.state_params if layer.kind == "state" else 0
    if layer.kind == "compressed" and sizes.compressed is not None:
        return sizes.compressed.params(layer.ratio, sizes.D, layer.N, sizes.H, norms=biases)
    if layer.kind == "mla" and sizes.mla is not None:
        m = sizes.mla
        total: int = latent_attention_params(
            sizes.D, layer.N, m.R, m.nope_dim, m.rope_dim, m.v_dim, m.q_rank
        )
        if biases:  # of the projections into latents, not out of them
            total += ((m.q_rank or 0) + m.R + m.rope_dim) * sizes.qkv_bias + sizes.D * sizes.o_bias
        return total
    kv_width = 2 * layer.K * sizes.H
    gate = layer.N * sizes.H * sizes.gated_attention
    total = attention_params(sizes.D, layer.N, layer.K, sizes.H) + gate * sizes.D
    if not layer.owns_kv:
        total, kv_width = total - kv_width * sizes.D, 0
    elif sizes.keys_are_values and layer.kind == "full":
        total, kv_width = total - kv_width // 2 * sizes.D, kv_width // 2
    if biases:
        queries = layer.N * sizes.H + gate
        total += (queries + kv_width) * int(sizes.qkv_bias) + sizes.D * sizes.o_bias
        total += layer.N * sizes.sinks
    return total


def _index(sizes: Sizes, norms: bool = True) -> int:
    """What chooses keys: queries from their latent, a key, a weight a head, the key's norm; from
    the stream without such weights, but with two norms, where there is no latent."""
    i = sizes.index
    if i is None:
        return 0
    if sizes.mla is None:
        return len(i.layers) * (sizes.D * (i.heads + 1) * i.dim + 2 * i.dim * norms)
    each = (sizes.mla.q_rank or 0) * i.heads * i.dim + sizes.D * (i.dim + i.heads)
    return len(i.layers) * (each + 2 * i.dim * norms)


def _mlp(sizes: Sizes, layer: _Layer) -> int:
    if layer.mlp == "none":
        return 0
    if layer.mlp == "experts" and sizes.moe is not None:
        return sizes.moe.E * expert_params(sizes) + _beside_experts(sizes)
    params: int = mlp_params(sizes.D, layer.F, sizes.gated_mlp)
    return params + _mlp_biases(sizes, layer.F) * sizes.mlp_bias


def _mlp_biases(sizes: Sizes, F: int) -> int:
    return F * (2 if sizes.gated_mlp else 1) + sizes.D


def _routers(sizes: Sizes) -> int:
    if sizes.moe is None:
        return 0
    return sizes.n_moe_layers * (sizes.D + sizes.moe.router_bias) * sizes.moe.E


def _inner_norms(sizes: Sizes, layer: _Layer) -> int:
    """Norms inside attention: per head width for queries and keys, or on MLA's latents."""
    if layer.kind == "mla" and sizes.mla is not None:
        return sizes.mla.R + (sizes.mla.q_rank or 0)
    if layer.kind in ("full", "sliding", "chosen") and sizes.qk_norm:
        return sizes.H * (2 if layer.owns_kv else 1)
    return 0
