"""The sizes of model types whose layers differ, counted but not run: states beside attention,
layers that lack one half."""

from typing import Any

from twophase.theory.hugging_face.common import attention_bias, common_sizes
from twophase.theory.hugging_face.experts import deepseek
from twophase.theory.hugging_face.mixed import listed, mlp_kinds
from twophase.theory.hugging_face.rope import read_object
from twophase.theory.hugging_face.values import Config, flag, need, size
from twophase.theory.sizes import LayerWidths, MixtureOfExperts

LETTERS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}  # of Nemotron-H's patterns
SPELLED = {"linear_attention": "mamba", "full_attention": "attention"}
MIXERS = {"mamba": "state", "attention": "full"}
MLPS = {"moe": "experts", "mlp": "dense"}


def nemotron_h(config: Config) -> dict[str, Any]:
    """Mamba 2 and attention, with MLPs or experts between them: a layer here is one of the former
    with the MLP that may follow it. Experts may see a narrower stream (`moe_latent_size`)."""
    for key in ("use_bias", "mlp_bias", "mamba_proj_bias"):
        if flag(config, key):
            raise ValueError(f"A nemotron_h config with {key!r} is unsupported.")
    layers = _in_pairs(_blocks(config))
    mixers, mlps = zip(*layers, strict=True)
    own = {"num_hidden_layers": len(layers), "head_dim": need(config, "head_dim")}
    if config.get("attention_head_dim") is not None:
        own["head_dim"] = config["attention_head_dim"]
    if "dense" not in mlps:
        own["intermediate_size"] = size(config, "moe_intermediate_size")
    sizes = common_sizes(dict(config) | own) | attention_bias(config)
    sizes |= {"attention": mixers, "mlps": mlps, "gated_mlp": False, "activation": "relu2"}
    return (
        sizes | _mamba2(config, sizes["D"]) | ({"moe": _moe(config)} if "experts" in mlps else {})
    )


def _blocks(config: Config) -> list[str]:
    """What each block is: one of `LETTERS`' words."""
    listed, pattern = config.get("layers_block_type"), config.get("hybrid_override_pattern")
    names = listed if listed is not None else [LETTERS.get(one, one) for one in str(pattern)]
    found = [SPELLED.get(name, name) if isinstance(name, str) else name for name in names]
    if not found or (listed is None and pattern is None) or not set(found) <= {*MIXERS, *MLPS}:
        raise ValueError(
            "A nemotron_h config needs 'layers_block_type' or 'hybrid_override_pattern', blocks of"
            f" {', '.join([*MIXERS, *MLPS])} ({''.join(LETTERS)}); got {listed or pattern!r}."
        )
    return found


def _in_pairs(blocks: list[str]) -> list[tuple[str, str]]:
    """Mixer and MLP of each layer, either of which may be missing."""
    layers: list[tuple[str, str]] = []
    for block in blocks:
        if block in MIXERS:
            layers.append((MIXERS[block], "none"))
        elif layers and layers[-1][1] == "none":
            layers[-1] = (layers[-1][0], MLPS[block])
        else:
            layers.append(("none", MLPS[block]))
    return layers


def _mamba2(config: Config, D: int) -> dict[str, int]:
    """What a layer of Mamba 2 weighs, keeps and computes: projections, a short convolution, a step,
    a decay and a skip a head, a norm; a matrix a head; the matrix decayed, added to, read."""
    heads, width = size(config, "mamba_num_heads"), size(config, "mamba_head_dim")
    state, kernel = size(config, "ssm_state_size"), size(config, "conv_kernel")
    inner = heads * width
    mixed = inner + 2 * size(config, "n_groups") * state
    biases = mixed * flag(config, "use_conv_bias", default=True)
    projections = D * (inner + mixed + heads) + inner * D
    return {
        "state_params": projections + mixed * kernel + biases + 3 * heads + inner,
        "state_values": inner * state + mixed * (kernel - 1),
        "state_flops": 5 * inner * state + 2 * mixed * kernel,
    }


def _moe(config: Config) -> MixtureOfExperts:
    F, shared = size(config, "moe_intermediate_size"), "moe_shared_expert_intermediate_size"
    if size(config, shared) % F:
        raise ValueError(
            f"The config's {shared!r} {config[shared]} is supported only as a multiple of"
            f" 'moe_intermediate_size' {F}."
        )
    narrow = config.get("moe_latent_size")
    return MixtureOfExperts(
        E=size(config, "n_routed_experts"),
        k=size(config, "num_experts_per_tok"),
        F=F,
        n_shared=size(config, shared) // F,
        router_bias=True,
        latent=None if narrow is None else size(config, "moe_latent_size"),
    )


def nemotron_nas(config: Config) -> dict[str, Any]:
    """Llama's layers after a search: attention with fewer KV heads or none, MLPs of any width or
    none (`block_configs`)."""
    blocks = need(config, "block_configs")
    N, D = size(config, "num_attention_heads"), size(config, "hidden_size")
    if not isinstance(blocks, list) or len(blocks) != size(config, "num_hidden_layers"):
        raise ValueError("The config's 'block_configs' must have an entry for each of its layers.")
    layers = [_found_block(block, N, D) for block in blocks]
    own = {"num_key_value_heads": min(K for _, _, K in layers if K) if layers else N}
    own["intermediate_size"] = max(F for _, F, _ in layers) or D
    sizes = common_sizes(dict(config) | own) | attention_bias(config)
    return sizes | {
        "attention": tuple("full" if K else "none" for _, _, K in layers),
        "mlps": tuple("dense" if F else "none" for _, F, _ in layers),
        "widths": tuple(LayerWidths(F or sizes["F"], N, K or sizes["K"]) for N, F, K in layers),
        "mlp_bias": flag(config, "mlp_bias"),
    }


def _found_block(block: Any, N: int, D: int) -> tuple[int, int, int]:
    """N, F and K of a block, 0 for what it has not: DeciLM's `ffn_mult` is of two thirds of D, up
    to a multiple of 256."""
    attention, mlp = (dict((block or {}).get(part) or {}) for part in ("attention", "ffn"))
    odd = [
        k for part in (attention, mlp) for k in ("replace_with_linear", "sparsify") if part.get(k)
    ]
    odd += [k for k in ("window_length", "num_sink_tokens") if attention.get(k)]
    if odd:
        raise ValueError(f"A block of the config has {odd[0]!r}, which is unsupported.")
    F = 0 if mlp.get("no_op") else -(-int(2 * need(mlp, "ffn_mult") * D / 3) // 256) * 256
    K = 0 if attention.get("no_op") else N // size(attention, "n_heads_in_group")
    return N, F, K


OF_K3 = (
    "use_full_rank_gate",
    "mla_use_output_gate",
    "routed_expert_hidden_size",
    "attn_res_block_size",
    "latent_moe_use_norm",
)


def kimi_linear(config: Config) -> dict[str, Any]:
    """A delta rule with a decay for each channel (KDA) in most layers, latents in the others,
    DeepSeek-V3's experts."""
    linear = read_object(config, "linear_attn_config")
    for key in OF_K3:
        if config.get(key) or linear.get(key):
            raise ValueError(f"A kimi_linear config with {key!r} is unsupported.")
    names = {
        "n_routed_experts": ["num_local_experts", "num_experts", "n_routed_experts"],
        "num_experts_per_tok": ["num_experts_per_tok", "num_experts_per_token"],
        "n_shared_experts": ["n_shared_experts", "num_shared_experts"],
    }
    own = dict(config) | {"model_type": "deepseek_v3", "first_k_dense_replace": 0}
    sizes = deepseek(own | {key: size(config, *spelled) for key, spelled in names.items()})
    L = sizes["L"]
    full = linear.get("full_attn_layers")  # numbered from 1
    attends = [i > 0 and i % 4 == 0 for i in range(L)]
    if config.get("layer_types") is not None:
        attends = [one == "full_attention" for one in listed(config, "layer_types", L)]
    elif isinstance(full, list):
        attends = [i + 1 in full for i in range(L)]
    return {
        **sizes,
        "attention": tuple("mla" if one else "state" for one in attends),
        "mlps": mlp_kinds(config, L, n_dense=1),
        **_channel_decays(config, linear, sizes["D"]),
    }


def _channel_decays(config: Config, linear: Config, D: int) -> dict[str, int]:
    """What a layer of KDA weighs, keeps and computes: projections, a short convolution, a write
    strength a head, decays and a gate through a head's width, a norm; a matrix a head."""
    heads = size(linear or config, "num_heads" if linear else "linear_num_heads")
    width = size(linear or config, "head_dim" if linear else "linear_head_dim")
    kernel = size(
        linear or config, "short_conv_kernel_size" if linear else "linear_conv_kernel_dim"
    )
    inner = heads * width
    gates = 2 * (D * width + width * inner) + inner + heads
    return {
        "state_params": 4 * D * inner + 3 * inner * kernel + D * heads + gates + width,
        "state_values": inner * width + 3 * inner * (kernel - 1),
        "state_flops": 7 * inner * width + 2 * 3 * inner * kernel,
    }
