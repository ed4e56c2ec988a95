"""Parameter counts of an `Architecture`, exact to the parameter, split by part."""

from functools import lru_cache

from twophase.theory.architecture import Architecture
from twophase.theory.params import (
    attention_params,
    embedding_params,
    latent_attention_params,
    mlp_params,
)


def breakdown(arch: Architecture) -> dict[str, int]:
    """Parameters by part; see `Architecture.breakdown`."""
    return dict(_parts(arch))


@lru_cache(maxsize=256)
def _parts(arch: Architecture) -> tuple[tuple[str, int], ...]:
    norm_width = arch.D * (2 if arch.norm == "layer" else 1)
    parts = {
        "embedding": embedding_params(arch.V, arch.D),
        "positions": arch.learned_positions * arch.D,
        "attention": sum(_attention(arch, i) for i in range(arch.L)),
        "mlp": sum(_mlp(arch, i) for i in range(arch.L)),
        "router": _routers(arch),
        "norms": (
            (arch.L * arch.norms_per_layer + 1) * norm_width
            + sum(_inner_norms(arch, i) for i in range(arch.L))
        ),
        "head": 0 if arch.tied_embeddings else embedding_params(arch.V, arch.D),
    }
    return tuple((part, int(size)) for part, size in parts.items())


@lru_cache(maxsize=256)
def matmul_params(arch: Architecture) -> int:
    """Weights that one token is multiplied with; see `Architecture.n_matmul_params`."""
    total = embedding_params(arch.V, arch.D)  # the head, tied or not
    for layer in range(arch.L):
        total += _attention(arch, layer, biases=False)
        if _is_moe(arch, layer) and arch.moe is not None:
            total += (arch.moe.k + arch.moe.n_shared) * arch.n_expert_params() + arch.D * arch.moe.E
        else:
            total += mlp_params(arch.D, arch.F, arch.gated_mlp)
    return int(total)


def _owns_kv(arch: Architecture, layer: int) -> bool:
    return arch.kv_source is None or arch.kv_source[layer] == layer


def _is_moe(arch: Architecture, layer: int) -> bool:
    return arch.moe is not None and layer >= arch.moe.n_dense_layers


def _attention(arch: Architecture, layer: int, biases: bool = True) -> int:
    kind = arch.layer_kinds[layer]
    if kind == "state":
        return arch.state_params
    if kind == "mla" and arch.mla is not None:
        m = arch.mla
        total = latent_attention_params(
            arch.D, arch.N, m.R, m.nope_dim, m.rope_dim, m.v_dim, m.q_rank
        )
        if biases:  # of the projections into latents, not out of them
            total += ((m.q_rank or 0) + m.R + m.rope_dim) * arch.qkv_bias + arch.D * arch.o_bias
        return int(total)
    kv_width = 2 * arch.K * arch.H if _owns_kv(arch, layer) else 0
    total = (
        attention_params(arch.D, arch.N, arch.K, arch.H) - (2 * arch.K * arch.H - kv_width) * arch.D
    )
    if biases:
        total += (arch.N * arch.H + kv_width) * arch.qkv_bias + arch.D * arch.o_bias
    return int(total)


def _mlp(arch: Architecture, layer: int) -> int:
    if _is_moe(arch, layer) and arch.moe is not None:
        return (arch.moe.E + arch.moe.n_shared) * arch.n_expert_params()
    biases = (arch.F * (2 if arch.gated_mlp else 1) + arch.D) * arch.mlp_bias
    return int(mlp_params(arch.D, arch.F, arch.gated_mlp)) + biases


def _routers(arch: Architecture) -> int:
    if arch.moe is None:
        return 0
    return arch.n_moe_layers * (arch.D + arch.moe.router_bias) * arch.moe.E


def _inner_norms(arch: Architecture, layer: int) -> int:
    """Norms inside attention: per head width for queries and keys, or on MLA's latents."""
    kind = arch.layer_kinds[layer]
    if kind == "mla" and arch.mla is not None:
        return arch.mla.R + (arch.mla.q_rank or 0)
    if kind in ("full", "sliding") and arch.qk_norm:
        return arch.H * (2 if _owns_kv(arch, layer) else 1)
    return 0
