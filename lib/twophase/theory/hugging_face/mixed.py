"""The sizes of model types with windows or chosen keys in most layers and dense MLPs in some,
counted but not run: MiMo, MiniMax M3, Step 3.5 and 3.7."""

from typing import Any

from twophase.theory.hugging_face.common import attention_bias, common_sizes
from twophase.theory.hugging_face.counted import kinds
from twophase.theory.hugging_face.dense import qwen2
from twophase.theory.hugging_face.rope import read_object
from twophase.theory.hugging_face.values import Config, count, flag, size
from twophase.theory.sizes import LayerWidths, MixtureOfExperts, SparseIndex


def mimo(config: Config) -> dict[str, Any]:
    """Qwen2's layers; its biases are `attention_bias`."""
    return qwen2(config) | {"qkv_bias": flag(config, "attention_bias", default=True)}


def mimo_v2_flash(config: Config) -> dict[str, Any]:
    """Windows with sinks and twice the KV heads in most layers; values narrower than keys: what
    both weigh, keep and compute together is as if each had the mean of their widths."""
    key, value = size(config, "head_dim"), size(config, "v_head_dim")
    sizes = common_sizes(dict(config) | {"head_dim": (key + value) // 2})
    L, N, K = sizes["L"], sizes["N"], sizes["K"]
    usual = {"swa_num_key_value_heads": 2 * K, "swa_num_attention_heads": N}
    usual |= {"swa_head_dim": key, "swa_v_head_dim": value, "add_swa_attention_sink_bias": True}
    usual |= {"add_full_attention_sink_bias": False, "n_shared_experts": None}
    _only(config, usual | ({} if (key + value) % 2 == 0 else {"v_head_dim": key}))
    own = dict(config)
    if config.get("hybrid_layer_pattern") is not None:
        names = ("full_attention", "sliding_attention")
        pattern = listed(config, "hybrid_layer_pattern", L)
        own["layer_types"] = [names[bool(one)] for one in pattern]
    default = tuple("sliding" if i and (i + 1) % 6 else "full" for i in range(L))
    sizes |= kinds(own, sizes, default)
    slides = [kind == "sliding" for kind in sizes["attention"]]
    window = count(config, "sliding_window_size", size(config, "sliding_window") - 1) + 1
    return sizes | {
        "qkv_bias": flag(config, "attention_bias"),
        "window": window,
        "widths": tuple(LayerWidths(sizes["F"], N, 2 * K if wide else K) for wide in slides),
        "moe": _experts(config, size(config, "moe_intermediate_size"), shared=0),
        "mlps": mlp_kinds(config, L, n_dense=1),
        "other_params": sum(slides) * N,
    }


def minimax_m3(config: Config) -> dict[str, Any]:
    """Grouped queries that, but in the first layers, choose blocks of keys, with experts behind
    them."""
    sparse = read_object(config, "sparse_attention_config")
    names = {"index_n_heads": "num_index_heads", "index_head_dim": "index_dim"}
    names |= {"index_block_size": "block_size", "index_topk_blocks": "topk_blocks"}
    flat = {key: sparse[f"sparse_{old}"] for key, old in names.items() if f"sparse_{old}" in sparse}
    own = dict(config) | flat
    F = size(config, "intermediate_size")
    sizes = common_sizes(own | {"intermediate_size": size(config, "dense_intermediate_size")})
    types, freq = config.get("layer_types"), sparse.get("sparse_attention_freq")
    chooses = [False] * sizes["L"]
    if types is not None:
        chooses = [one == "minimax_m3_sparse" for one in listed(config, "layer_types", sizes["L"])]
    elif freq is not None:
        chooses = [bool(one) for one in listed(sparse, "sparse_attention_freq", sizes["L"])]
    layers = tuple(i for i, one in enumerate(chooses) if one)
    top_k = size(own, "index_topk_blocks") * size(own, "index_block_size")
    widths = size(own, "index_n_heads"), size(own, "index_head_dim")
    return sizes | {
        "attention": tuple("chosen" if one else "full" for one in chooses),
        "index": SparseIndex(*widths, top_k, layers) if layers else None,
        "qk_norm": True,
        "moe": _experts(config, F, shared=size(config, "shared_intermediate_size")),
        "mlps": mlp_kinds(config, sizes["L"], n_dense=0),
    }


def step3(config: Config) -> dict[str, Any]:
    """Windows in three of four layers, with more query heads; a gate for each head; three dense
    layers, then experts."""
    sizes = common_sizes(config)
    L, N, K = sizes["L"], sizes["N"], sizes["K"]
    types = listed(config, "layer_types", L) if config.get("layer_types") else None
    sizes |= kinds(dict(config) | {"layer_types": types}, sizes, ("full",) * L)
    other = read_object(config, "attention_other_setting")
    wide = count(config, "num_sliding_attention_heads", count(other, "num_attention_heads", N))
    heads = [wide if kind == "sliding" else N for kind in sizes["attention"]]
    gates = sizes["D"] * sum(heads)
    F, shared = size(config, "moe_intermediate_size"), size(config, "share_expert_dim")
    return {
        **sizes,
        **attention_bias(config),
        "qk_norm": True,
        "window": size(config, "sliding_window") if "sliding" in sizes["attention"] else None,
        "widths": tuple(LayerWidths(sizes["F"], n, K) for n in heads),
        "moe": _experts(config, F, shared),
        "mlps": mlp_kinds(config, L, n_dense=3),
        "other_params": gates,
        "other_matmul_params": gates,
    }


EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
VISITED = ("num_experts_per_tok", "moe_top_k")


def _experts(config: Config, F: int, shared: int) -> MixtureOfExperts:
    """Experts of width F beside those of width `shared` in all that every token visits."""
    if shared % F:
        raise ValueError(
            f"The config's shared experts are {shared} wide, which is supported only as a multiple"
            f" of the others' {F}."
        )
    E, k = size(config, *EXPERTS), size(config, *VISITED)
    return MixtureOfExperts(E=E, k=k, F=F, n_shared=shared // F, router_bias=True)


def mlp_kinds(config: Config, L: int, n_dense: int) -> tuple[str, ...]:
    """What each layer has after attention, in any of its spellings; the first `n_dense` are dense
    where a config does not say."""
    if config.get("mlp_layer_types") is not None:
        sparse = [one != "dense" for one in listed(config, "mlp_layer_types", L)]
    elif isinstance(config.get("moe_layer_freq"), list):
        sparse = [bool(one) for one in listed(config, "moe_layer_freq", L)]
    elif config.get("moe_layers_enum") is not None:
        named = {one.strip() for one in str(config["moe_layers_enum"]).strip("[]").split(",")}
        sparse = [str(i) in named for i in range(L)]
    else:
        sparse = [i >= count(config, "first_k_dense_replace", n_dense) for i in range(L)]
    return tuple("experts" if one else "dense" for one in sparse)


def listed(config: Config, key: str, L: int) -> list[Any]:
    """The list under a key, of the first L layers: those that predict further tokens may follow."""
    found, more = config.get(key), count(config, "num_nextn_predict_layers")
    if not isinstance(found, (list, tuple)) or not L <= len(found) <= L + more:
        raise ValueError(
            f"The config's {key!r} must be a list with an entry for each of {L} layers."
        )
    return list(found[:L])


def _only(config: Config, supported: dict[str, Any]) -> None:
    """ValueError for a key that is there and says something else."""
    for key, value in supported.items():
        if config.get(key, value) != value:
            raise ValueError(
                f"A {config['model_type']} config with {key!r} {config[key]!r} is unsupported:"
                f" {value!r} is."
            )
