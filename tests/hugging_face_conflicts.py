"""Random config.json files whose keys contradict each other, and what transformers makes of each.

A file starts as a small model of one family, in the spelling of transformers 4 or 5. Then some keys
are set to what a careless hand may write there: a second key that means the same with another
value, text for a switch, a number of another type. `judge` builds the model that transformers reads
from such a file, saves its weights beside it, and compares: our logits are theirs, or we refuse.
"""

import json
import warnings
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from hugging_face_cases import FAMILY_USUAL, USUAL
from hugging_face_folders import refusal
from hugging_face_models import disagreement, draw
from hugging_face_published import EYES, PUBLISHED, shrunk
from hypothesis import strategies as st
from safetensors.torch import save_file

from twophase.models import hugging_face

FAMILIES = (
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "gemma2",
    "gemma3_text",
    "deepseek_v2",
    "deepseek_v3",
    "glm4_moe",
    "stablelm",
    "starcoder2",
    "gemma3",
)
T = 40  # tokens: enough for every window and every stretched position
WIDE = 32  # inputs of a matrix: the width of most models here
Config = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """What came of one file: of our reader and of transformers'."""

    refused: str  # our sentence; empty where the file is taken
    theirs_failed: str  # their exception; empty where they have a model
    difference: float  # of logits, in deviations of theirs; nan unless both have a model


def plain(family: str) -> Config:
    """A small config of a family, without a word about RoPE: 3 layers, 4 heads."""
    if family == "gemma3":
        text = plain("gemma3_text")
        return {
            "model_type": family,
            "text_config": text,
            "vision_config": EYES,
            "mm_tokens_per_image": 4,
        }
    return (
        {key: value for key, value in USUAL.items() if key != "max_position_embeddings"}
        | {"head_dim": 12, "max_position_embeddings": 256}
        | {k: v for k, v in FAMILY_USUAL.get(family, {}).items() if k != "rope_parameters"}
        | ({"head_dim": 6} if family.startswith("deepseek") else {})
        | ({"head_dim": 8} if family == "stablelm" else {})
        | {"model_type": family}
    )


def judge(config: Config, folder: Path) -> Verdict:
    """Both readings of one config.json."""
    (folder / "config.json").write_text(json.dumps(config))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs = their_model(folder)
            tokens = torch.arange(T)[None] * 7 % theirs.config.get_text_config().vocab_size
            logits = theirs(input_ids=tokens).logits  # [1, T, V]
        except Exception as error:  # a file of nonsense may fail in any way
            return Verdict(refusal(config), repr(error), float("nan"))
        save_weights(theirs, folder)
        try:
            ours = hugging_face.load(folder)
        except ValueError as error:
            return Verdict(str(error), "", float("nan"))
        return Verdict("", "", disagreement(ours(tokens), logits))


def save_weights(theirs: Any, folder: Path) -> None:
    """The weights of a model of transformers, in one file, a tied matrix once."""
    weights = {key: value.contiguous() for key, value in theirs.state_dict().items()}
    if theirs.config.get_text_config().tie_word_embeddings is True:
        weights.pop("lm_head.weight", None)
    save_file(weights, folder / "model.safetensors")


def their_model(folder: Path) -> Any:
    """The model that transformers reads from a config.json, with weights that hide nothing."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder)
    options = {"attn_implementation": "eager", "experts_implementation": "eager"}
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, **options)
    model = model.eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(5)
    named = dict(model.named_parameters()) | dict(model.named_buffers())
    for name in sorted(named):
        computed = "inv_freq" in name or "embed_scale" in name
        if named[name].is_floating_point() and not computed:
            draw(named[name], name, config.get_text_config(), generator)
            tame(named[name])
    return model


def tame(weight: torch.Tensor) -> None:
    """Have what a matrix of many inputs gives be no larger than what one of WIDE inputs does.

    A file that leaves a width to its family has DeepSeek's 512 numbers a latent, or 1,536 a query.
    With deviations of 0.3 such a matrix magnifies what fp32 rounds away until we and transformers
    are 4e-4 from our own selves in fp64 each, and 1e-4 from each other: no mistake of anybody.
    """
    if weight.ndim > 1 and weight.shape[-1] > WIDE:
        weight.mul_((WIDE / weight.shape[-1]) ** 0.5)


# What may be written under a key. Both values of a pair occur, so that two keys contradict.
ODD = ("false", "true", "1", 1, 0, 1.0, None)
THETAS = (300.0, 300, 5000.0, "300.0", True, None)
SCALINGS: tuple[Any, ...] = (
    None,
    {},
    {"type": "linear", "factor": 4.0},
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "linear", "factor": 4},
    {"rope_type": "linear", "factor": "4.0"},
    {"rope_type": "linear", "type": "default", "factor": 4.0},
    {"rope_type": "default", "type": "linear", "factor": 4.0},
    {"rope_type": "linear", "factor": 4.0, "rope_theta": 300.0},
    {"rope_type": "default", "rope_theta": 300.0},
    {"rope_type": "default"},
    {"rope_theta": 5000.0},
    {"rope_theta": "5000.0"},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32},
    {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32, "truncate": "false"},
    {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32, "truncate": False},
    {"rope_type": "yarn", "factor": 8.0, "attention_factor": 1},
    {"rope_type": "yarn", "factor": 8.0, "mscale": 0.7, "mscale_all_dim": 0.7},
    {"rope_type": "yarn", "factor": 8.0, "mscale": True, "mscale_all_dim": 1},
    {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 32},
)
KINDS = ("sliding_attention", "full_attention")
PER_KIND: tuple[Any, ...] = tuple(
    {"full_attention": full, "sliding_attention": sliding}
    for full in (None, {"rope_type": "linear", "factor": 4.0}, *SCALINGS[8:11], SCALINGS[15])
    for sliding in (None, {"rope_type": "default", "rope_theta": 300.0}, SCALINGS[8])
)
LAYER_TYPES: tuple[Any, ...] = (
    None,
    ["full_attention"] * 3,
    ["sliding_attention"] * 3,
    ["full_attention", "sliding_attention", "full_attention"],
    ["full_attention"] * 2,
    ["global"] * 3,
)
VALUES: dict[str, tuple[Any, ...]] = {
    "rope_theta": THETAS,
    "rope_local_base_freq": THETAS,
    "rope_scaling": SCALINGS,
    "rope_parameters": SCALINGS + PER_KIND,
    "partial_rotary_factor": (1, 1.0, 0.5, None, "1", True),
    "original_max_position_embeddings": (16, 64, None, "64", True),
    "max_position_embeddings": (64, 512, "512", 512.0, True, None),
    "head_dim": (8, 12, None, "12", 12.0, True),
    "num_key_value_heads": (1, 2, 4, None, "2", 2.0, True),
    "num_attention_heads": (4, 2, "4", True),
    "hidden_size": (32, 36, "32", 32.0),
    "num_hidden_layers": (1, 3, "3", True),
    "multi_query": (True, False),
    "num_kv_heads": (1, 2),
    "intermediate_size": (44, "44"),
    "tie_word_embeddings": (True, False, *ODD),
    "attention_bias": (True, False, *ODD),
    "mlp_bias": (True, False, *ODD),
    "rms_norm_eps": (1e-3, 1e-2, 1, "0.001", None, True, 0),
    "layer_norm_eps": (1e-2,),
    "hidden_act": ("silu", "gelu", "swish", "gelu_pytorch_tanh", None, 1),
    "hidden_activation": ("gelu_pytorch_tanh", "gelu", "silu", None, 1),
    "sliding_window": (5, 9, None, "5", 5.0, True, False, 0, -1),
    "use_sliding_window": (True, False, *ODD),
    "max_window_layers": (0, 1, 3, 5, "1", True, None),
    "layer_types": LAYER_TYPES,
    "sliding_window_pattern": (1, 2, 3, 6, "2", True, None, 0),
    "_sliding_window_pattern": (1, 2, 6),
    "query_pre_attn_scalar": (20, 30, 20.0, "20", None, True),
    "attn_logit_softcapping": (1.5, 3, None, "1.5", True, 0),
    "final_logit_softcapping": (4.0, 2, None, "4.0", True, 0),
    "use_bidirectional_attention": (False, None, "false", 0),
    "num_experts": (5, 8, None, "8", True),
    "num_local_experts": (5, 8, None, "8"),
    "n_routed_experts": (5, 8, None, "8"),
    "num_experts_per_tok": (1, 2, None, "2", True, 2.0),
    "moe_intermediate_size": (12, 14, "12"),
    "norm_topk_prob": (True, False, *ODD),
    "decoder_sparse_step": (1, 2, "1", True, 1.0, None),
    "mlp_only_layers": ([], [0], [1], None, [False], ["0"]),
    "n_shared_experts": (1, 2, None, "1", True),
    "first_k_dense_replace": (0, 1, 3, None, "1", True),
    "moe_layer_freq": (1, 2, "1", True),
    "n_group": (1, 2, 4, None, "2", True),
    "topk_group": (1, 2, None, "2", True),
    "topk_method": ("greedy", "group_limited_greedy", "noaux_tc", None),
    "scoring_func": ("softmax", "sigmoid", None),
    "routed_scaling_factor": (1.0, 2.5, 2, None, "2.5", True),
    "rope_interleave": (True, False, *ODD),
    "kv_lora_rank": (14, "14", True),
    "q_lora_rank": (18, None, "18", 0),
    "qk_rope_head_dim": (6, 8, "6"),
    "qk_head_dim": (16, 20),
    "v_head_dim": (7, None, "7"),
    "torch_dtype": ("float32", "bfloat16", None),
    "dtype": ("float32", "float16", None),
    "bos_token_id": (1, 90, None),
    "eos_token_id": (1, [1, 2], None),
    "is_causal": (True, False),
    "model_type": ("llama", "qwen2", None),
    "vocab_size": (97, 50, "97"),
}
# The same, each by itself in order, so that what is at odds is the bases.
BASES: dict[str, tuple[Any, ...]] = {
    "rope_theta": (300.0, 5000.0),
    "rope_scaling": tuple(SCALINGS[i] for i in (2, 3, 8, 9, 10, 14)),
    "rope_parameters": (*(SCALINGS[i] for i in (8, 9, 10, 11)), *PER_KIND[3:6]),
}
ABOUT = {
    "bases": list(BASES),
    "rope": [key for key in VALUES if "rope" in key or "original" in key or "rotary" in key],
    "windows": [key for key in VALUES if "window" in key or key == "layer_types"],
    "experts": [key for key in VALUES if "expert" in key or "topk" in key or "moe" in key],
    "all": list(VALUES),
}


BEFORE = [*map(plain, FAMILIES), *(shrunk(known["config"]) for known in PUBLISHED.values())]


@st.composite
def configs(make: st.DrawFn) -> tuple[Config, tuple[str, ...]]:
    """A config.json and the keys that were changed in it."""
    about = make(st.sampled_from(list(ABOUT)))
    values, fewest = (BASES, 2) if about == "bases" else (VALUES, 1)
    keys = st.sampled_from(ABOUT[about])
    changed = make(st.lists(keys, min_size=fewest, max_size=3, unique=True))
    changes = {key: make(st.sampled_from(values[key])) for key in changed}
    config = deepcopy(make(st.sampled_from(BEFORE)))
    outside = make(st.booleans())
    part = config if "text_config" not in config or outside else config["text_config"]
    part.update(changes)
    return config, tuple(changed)
