"""The sizes of DeepSeek V4, counted but not run."""

from typing import Any

from twophase.theory.compressed_attention import CompressedKeys
from twophase.theory.hugging_face.common import common_sizes
from twophase.theory.hugging_face.mixed import listed
from twophase.theory.hugging_face.rope import read_object
from twophase.theory.hugging_face.values import Config, count, size
from twophase.theory.sizes import MixtureOfExperts

KINDS = {
    "sliding_attention": 0,
    "compressed_sparse_attention": 4,
    "heavily_compressed_attention": 128,
}
RATES = ("compressed_sparse_attention", "heavily_compressed_attention")


def deepseek_v4(config: Config) -> dict[str, Any]:
    """One vector a position as key and value, of a window, and summaries of all before it; a stream
    of several copies that each half of a layer mixes (hyper-connections); experts, which the first
    layers take by a table of tokens instead of a router's choice."""
    if config.get("num_key_value_heads", 1) != 1:
        raise ValueError("A deepseek_v4 config has one KV head, which is key and value at once.")
    F = size(config, "moe_intermediate_size")
    sizes = common_sizes(dict(config) | {"num_key_value_heads": 1, "intermediate_size": F})
    L, D, N = sizes["L"], sizes["D"], sizes["N"]
    ratios, chosen = _ratios(config, L)
    groups = size(config, "o_groups")
    if N % groups:
        raise ValueError(f"The config's 'o_groups' {groups} does not divide {N} heads.")
    compressed = CompressedKeys(
        window=size(config, "sliding_window"),
        ratios=ratios,
        chosen_ratio=chosen,
        top_k=size(config, "index_topk"),
        index_heads=size(config, "index_n_heads"),
        index_dim=size(config, "index_head_dim"),
        q_rank=size(config, "q_lora_rank"),
        group_heads=N // groups,
        o_rank=size(config, "o_lora_rank"),
    )
    E, k = size(config, "n_routed_experts"), size(config, "num_experts_per_tok")
    shared = size(config, "n_shared_experts")
    copies, n_routed = size(config, "hc_mult"), L - _n_by_table(config, L)
    mixed = 2 * L * (2 + copies) * copies + copies  # numbers that mix the copies, a token
    return sizes | {
        "attention": "compressed",
        "compressed": compressed,
        "moe": MixtureOfExperts(E=E, k=k, F=F, n_shared=shared),
        "other_params": mixed * copies * D + mixed + 6 * L + 1 + n_routed * E,
        "other_matmul_params": mixed * copies * D,
    }


def _ratios(config: Config, L: int) -> tuple[tuple[int, ...], int]:
    """For each layer the positions of a summary, and of which layers they are chosen from."""
    rates = KINDS | {RATES[0]: count(config, "compress_rate_csa", KINDS[RATES[0]])}
    rates |= {RATES[1]: count(config, "compress_rate_hca", KINDS[RATES[1]])}
    rates |= {
        key: size(read_object(config, "compress_rates"), key)
        for key in read_object(config, "compress_rates")
    }
    chosen = rates[RATES[0]]
    if config.get("layer_types") is not None:
        names = listed(config, "layer_types", L)
        if not set(names) <= set(KINDS):
            raise ValueError(f"The config's 'layer_types' must be of {', '.join(KINDS)}.")
        return tuple(rates[name] for name in names), chosen
    if config.get("compress_ratios") is not None:
        ratios = listed(config, "compress_ratios", L)
    else:  # of the larger one
        ratios = [rates[RATES[1]]] * 2 + [rates[RATES[i % 2 == 0]] for i in range(L)]
    if not set(ratios[:L]) <= set(rates.values()):
        raise ValueError(f"The config's 'compress_ratios' must be of {sorted(rates.values())}.")
    return tuple(ratios[:L]), chosen


def _n_by_table(config: Config, L: int) -> int:
    """Layers whose experts a table gives."""
    if config.get("mlp_layer_types") is not None:
        return listed(config, "mlp_layer_types", L).count("hash_moe")
    return min(L, count(config, "num_hash_layers", 3))
