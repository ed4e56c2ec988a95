"""The sizes of Gemma 3n and Gemma 4, counted but not run: layers that read the keys of earlier
ones, a table of embeddings for every layer, full layers with wider heads, experts beside an MLP."""

from typing import Any

from twophase.theory.hugging_face.common import (
    activation,
    attention_bias,
    common_sizes,
    layer_kinds,
)
from twophase.theory.hugging_face.values import Config, count, flag, size
from twophase.theory.sizes import LayerWidths, MixtureOfExperts

ALTERNATES = 5  # every fifth layer of Gemma 3n is full, every sixth of Gemma 4


def gemma3n(config: Config) -> dict[str, Any]:
    """A stream of several copies (AltUp), of which a layer works on one and corrects the others; a
    low-rank path beside attention (LAuReL); keys of the last layers are those of earlier ones."""
    sizes, kinds = _gemma(config, ALTERNATES)
    D, L = sizes["D"], sizes["L"]
    copies, rank = size(config, "altup_num_inputs"), size(config, "laurel_rank")
    mixing = copies + copies**2  # numbers that correct and predict, from a router's `copies`
    products = L * (copies * (D + mixing) + 2 * D * rank) + 2 * (copies - 1) * D * D
    norms = L * 3 * D  # AltUp's scale and norm, LAuReL's norm
    extra = {"other_params": products + norms, "other_matmul_params": products}
    return _with_rows(config, sizes | _shared(config, kinds) | _added(sizes, extra))


def gemma4(config: Config) -> dict[str, Any]:
    """Full layers have wider heads, and with `attention_k_eq_v` one matrix for keys and values."""
    sizes, kinds = _gemma(config, ALTERNATES + 1)
    config = _of_full_layers(config, kinds)
    D, L, H, F = sizes["D"], sizes["L"], sizes["H"], sizes["F"]
    wide, both = size(config, "global_head_dim"), flag(config, "attention_k_eq_v")
    if wide % H:
        raise ValueError(
            f"The config's 'global_head_dim' {wide} is supported only as a multiple of 'head_dim'"
            f" {H}."
        )
    own_K = count(config, "num_global_key_value_heads", 0) if both else 0
    K, times = own_K or sizes["K"], wide // H
    first = L - count(config, "num_kv_shared_layers", 0)
    doubled = 2 if flag(config, "use_double_wide_mlp") else 1
    full = LayerWidths(F, sizes["N"] * times, K * times)
    other = LayerWidths(F, sizes["N"], sizes["K"])
    widths = [full if kind == "full" else other for kind in kinds]
    widths = [
        LayerWidths(w.F * (doubled if i >= first else 1), w.N, w.K) for i, w in enumerate(widths)
    ]
    shared = _shared(config, kinds)
    owners = shared.get("kv_source", range(L))
    norms = sum(
        (wide - H) * (2 if owners[i] == i else 1) for i, kind in enumerate(kinds) if kind == "full"
    )
    found = {"widths": tuple(widths), "keys_are_values": both, "other_params": norms}
    if flag(config, "enable_moe_block"):
        found |= _experts(config, F)
        found["other_params"] += L * (4 * D + found["moe"].E)  # three norms, a scale, one an expert
    return _with_rows(config, sizes | shared | found)


def _of_full_layers(config: Config, kinds: tuple[str, ...]) -> Config:
    """The config with what its full layers have as `global_...`, which transformers 5 writes for
    each layer, into `per_layer_config`."""
    each = config.get("per_layer_config")
    if each is None:
        return config
    full = [i for i, kind in enumerate(kinds) if kind == "full"]
    own: list[Any] = list(each.values()) if isinstance(each, dict) else [None]
    layers = [int(key) for key in each if str(key).isdecimal()] if own != [None] else []
    if own and (
        sorted(layers) != full or not isinstance(own[0], dict) or any(one != own[0] for one in own)
    ):
        raise ValueError(
            "The config's 'per_layer_config' is supported only where it says the same for all full"
            " layers, and nothing for others."
        )
    keys = {"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"}
    differs = own[0] if own else {}  # what is as in the other layers is not written
    return dict(config) | {whole: differs.get(key, config[key]) for key, whole in keys.items()}


def _experts(config: Config, F: int) -> dict[str, Any]:
    """Experts beside an MLP that every token visits, as if it were some more of them."""
    width = size(config, "moe_intermediate_size")
    if F % width:
        raise ValueError(
            f"The config's 'intermediate_size' {F} is supported beside experts only as a multiple"
            f" of 'moe_intermediate_size' {width}."
        )
    E, k = size(config, "num_experts"), size(config, "top_k_experts")
    return {"moe": MixtureOfExperts(E=E, k=k, F=width, n_shared=F // width)}


def _gemma(config: Config, period: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What both share, and the kind of each layer."""
    own = dict(config)
    listed = own.get("intermediate_size")
    if isinstance(listed, (list, tuple)):
        if len(set(listed)) != 1:
            raise ValueError("The config's 'intermediate_size' must be the same in all layers.")
        own["intermediate_size"] = listed[0]
    if isinstance(own.get("rope_parameters"), dict):
        own["rope_parameters"] = {"rope_theta": 1e6}  # for what is run, not for what is counted
    sizes = common_sizes(own) | attention_bias(own)
    sizes |= {"norms_per_layer": 4, "qk_norm": True}
    sizes["activation"] = activation(config, "hidden_activation", default="gelu_tanh")
    usual = tuple("full" if (i + 1) % period == 0 else "sliding" for i in range(sizes["L"]))
    kinds = layer_kinds(config, sizes["L"], usual)
    return sizes | {"attention": kinds, "window": size(config, "sliding_window")}, kinds


def _shared(config: Config, kinds: tuple[str, ...]) -> dict[str, Any]:
    """The last layers read the keys of the last layer of their kind before them."""
    n_shared = count(config, "num_kv_shared_layers", 0)
    if not n_shared:
        return {}
    first = len(kinds) - n_shared
    if first < 1 or set(kinds[first:]) - set(kinds[:first]):
        raise ValueError(
            f"The config's 'num_kv_shared_layers' {n_shared} leaves no layer whose keys some of"
            " them could read."
        )
    last = {kind: i for i, kind in enumerate(kinds[:first])}
    return {"kv_source": (*range(first), *(last[kind] for kind in kinds[first:]))}


def _added(sizes: dict[str, Any], more: dict[str, int]) -> dict[str, int]:
    return {name: sizes.get(name, 0) + value for name, value in more.items()}


def _with_rows(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """With a table of embeddings for every layer: a row a token, gated into each layer."""
    width, D, L = count(config, "hidden_size_per_layer_input", 0), sizes["D"], sizes["L"]
    if not width:
        return sizes
    products = L * 2 * D * width + D * L * width  # into and out of each layer, and of the stream
    more = {"other_params": products + L * D + width, "other_matmul_params": products}
    rows = {"token_rows": size(config, "vocab_size_per_layer_input"), "token_width": L * width}
    return sizes | rows | _added(sizes, more)
