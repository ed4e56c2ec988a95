"""Parameter counts of a transformer's `Sizes`, exact to the parameter, split by part."""

from functools import lru_cache

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


@lru_cache(maxsize=256)
def _parts(sizes: Sizes) -> tuple[tuple[str, int], ...]:
    norm_width = sizes.D * (2 if sizes.norm == "layer" else 1)
    parts = {
        "embedding": embedding_params(sizes.V, sizes.D),
        "positions": sizes.learned_positions * sizes.D,
        "attention": sum(_attention(sizes, i) for i in range(sizes.L)),
        "mlp": sum(_mlp(sizes, i) for i in range(sizes.L)),
        "router": _routers(sizes),
        "norms": (
            (sizes.L * sizes.norms_per_layer + 1) * norm_width
            + sum(_inner_norms(sizes, i) for i in range(sizes.L))
        ),
        "head": 0 if sizes.tied_embeddings else embedding_params(sizes.V, sizes.D),
    }
    return tuple((part, int(size)) for part, size in parts.items())


@lru_cache(maxsize=256)
def matmul_params(sizes: Sizes) -> int:
    """Weights that one token is multiplied with; see `Architecture.n_matmul_params`."""
    total = embedding_params(sizes.V, sizes.D)  # the head, tied or not
    for layer in range(sizes.L):
        total += _attention(sizes, layer, biases=False)
        if _is_moe(sizes, layer) and sizes.moe is not None:
            total += (sizes.moe.k + sizes.moe.n_shared) * expert_params(
                sizes
            ) + sizes.D * sizes.moe.E
        else:
            total += mlp_params(sizes.D, sizes.F, sizes.gated_mlp)
    return int(total)


def expert_params(sizes: Sizes) -> int:
    """Parameters of one routed expert; 0 in a dense model."""
    return 0 if sizes.moe is None else int(mlp_params(sizes.D, sizes.moe.F, sizes.gated_mlp))


def _owns_kv(sizes: Sizes, layer: int) -> bool:
    return sizes.kv_source is None or sizes.kv_source[layer] == layer


def _is_moe(sizes: Sizes, layer: int) -> bool:
    return sizes.moe is not None and layer >= sizes.moe.n_dense_layers


def _attention(sizes: Sizes, layer: int, biases: bool = True) -> int:
    kind = sizes.layer_kinds[layer]
    if kind == "state":
        return sizes.state_params
    if kind == "mla" and sizes.mla is not None:
        m = sizes.mla
        total = latent_attention_params(
            sizes.D, sizes.N, m.R, m.nope_dim, m.rope_dim, m.v_dim, m.q_rank
        )
        if biases:  # of the projections into latents, not out of them
            total += ((m.q_rank or 0) + m.R + m.rope_dim) * sizes.qkv_bias + sizes.D * sizes.o_bias
        return int(total)
    kv_width = 2 * sizes.K * sizes.H if _owns_kv(sizes, layer) else 0
    total = (
        attention_params(sizes.D, sizes.N, sizes.K, sizes.H)
        - (2 * sizes.K * sizes.H - kv_width) * sizes.D
    )
    if biases:
        total += (sizes.N * sizes.H + kv_width) * sizes.qkv_bias + sizes.D * sizes.o_bias
    return int(total)


def _mlp(sizes: Sizes, layer: int) -> int:
    if _is_moe(sizes, layer) and sizes.moe is not None:
        return (sizes.moe.E + sizes.moe.n_shared) * expert_params(sizes)
    biases = (sizes.F * (2 if sizes.gated_mlp else 1) + sizes.D) * sizes.mlp_bias
    return int(mlp_params(sizes.D, sizes.F, sizes.gated_mlp)) + biases


def _routers(sizes: Sizes) -> int:
    if sizes.moe is None:
        return 0
    return sizes.n_moe_layers * (sizes.D + sizes.moe.router_bias) * sizes.moe.E


def _inner_norms(sizes: Sizes, layer: int) -> int:
    """Norms inside attention: per head width for queries and keys, or on MLA's latents."""
    kind = sizes.layer_kinds[layer]
    if kind == "mla" and sizes.mla is not None:
        return sizes.mla.R + (sizes.mla.q_rank or 0)
    if kind in ("full", "sliding") and sizes.qk_norm:
        return sizes.H * (2 if _owns_kv(sizes, layer) else 1)
    return 0
