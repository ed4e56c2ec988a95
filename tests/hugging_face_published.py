"""config.json files as they were published, and the same on a small scale.

hugging_face_published.json has for each model its id on the hub, where its config.json was read
(`source`), the parameters that transformers counts in the full size, and the file itself: all keys,
bookkeeping included, as published. Where only a print of a config by a release of transformers was
to be had, the name says so.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twophase.theory.hugging_face.defaults import LEFT_OUT

Config = dict[str, Any]
PUBLISHED: dict[str, Any] = json.loads(
    Path(__file__).with_name("hugging_face_published.json").read_text()
)

V = 97  # tokens of a small model
H = 8  # numbers of a head: 16 times fewer than usual, so that parts of a head can still be told
WINDOW, CONTEXT = 5, 32  # far below the lengths of the tests; what was trained is 32 tokens long
EYES: Config = {
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
    "model_type": "siglip_vision_model",
}
# Kinds of layers come in this rhythm where a file does not say it (in theory's LEFT_OUT).
RHYTHM = {"gemma2": 2}


def shrunk(published: Config) -> Config:
    """A published config of a model small enough for a test. All keys stay, and all values but
    sizes; what is null, 0 or 1 stays so, too.

    Ratios stay: query heads per KV head, N·H to D, F to D, experts' F to D, the parts of a latent
    head, max_position_embeddings to the trained context. So do the rhythm of the layers (one whole
    turn of it, and what is left over), dense layers before the experts, groups of experts. Sizes
    that the file leaves to its family are written down, since they are large.
    """
    if isinstance(published.get("text_config"), dict):
        inner = {"model_type": f"{published['model_type']}_text"} | published["text_config"]
        small = {"text_config": shrunk(inner), "vision_config": EYES, "mm_tokens_per_image": 4}
        return {
            key: small.get(key, value) if not key.endswith(("_token_id", "_token_index")) else value
            for key, value in published.items()
        }
    said = LEFT_OUT.get(published["model_type"], {}) | published
    sizes = _attention_sizes(said) | _layer_sizes(said) | _expert_sizes(said)
    sizes |= _position_sizes(said)
    written = {key: sizes.get(key, value) for key, value in published.items()}
    large = ("num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")
    written |= {key: sizes[key] for key in large if key in said and key not in published}
    if "vocab_size" not in published:
        written["vocab_size"] = V
    return {key: _token(key, value) for key, value in written.items()}


def _token(key: str, value: Any) -> Any:
    """A special token must be one of the few that are left."""
    if not key.endswith("_token_id") or value is None:
        return value
    return [token % V for token in value] if isinstance(value, list) else value % V


def _scaled(said: Mapping[str, Any], ratio: float, *keys: str) -> Config:
    """These keys times a ratio; what is null or 0 stays so."""
    return {key: max(2, round(said[key] * ratio)) for key in keys if said.get(key)}


def _attention_sizes(said: Mapping[str, Any]) -> Config:
    """Widths, heads and what is measured in them."""
    heads = said.get("num_attention_heads", 8)  # Gemma 3's, which its files leave out
    kv_heads = said.get("num_key_value_heads") or heads
    K = 4 if kv_heads == heads else min(kv_heads, 2)
    N = heads // kv_heads * K
    head = said.get("head_dim") or said["hidden_size"] // heads
    D = N * int(H * said["hidden_size"] / (heads * head))
    if "kv_lora_rank" in said:  # D to N·H means little where heads come out of a latent
        D, head = 32, 16 * H
    found = {
        "num_attention_heads": N,
        "num_key_value_heads": K,
        "hidden_size": D,
        "vocab_size": V,
    }
    if said.get("head_dim"):
        found["head_dim"] = said["head_dim"] * H // head
    ratio = D / said["hidden_size"]
    found |= _scaled(said, ratio, "intermediate_size", "moe_intermediate_size")
    found |= _scaled(said, H / head, "query_pre_attn_scalar")
    found |= _scaled(said, 1 / 16, "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return found | _scaled(said, 1 / 32, "kv_lora_rank", "q_lora_rank")


def _layer_sizes(said: Mapping[str, Any]) -> Config:
    """One turn of the rhythm, what is left over, and the dense layers before the experts."""
    rhythm = said.get("_sliding_window_pattern") or said.get("sliding_window_pattern") or 1
    rhythm = RHYTHM.get(said["model_type"], rhythm)
    layers = said["num_hidden_layers"]
    turns = 1 if rhythm > 2 else 2
    L = turns * rhythm + layers % rhythm + said.get("first_k_dense_replace", 0)
    found: Config = {"num_hidden_layers": L}
    if said.get("layer_types"):
        found["layer_types"] = said["layer_types"][:L]
    if "max_window_layers" in said:
        found["max_window_layers"] = round(said["max_window_layers"] / layers * L)
    return found


def _expert_sizes(said: Mapping[str, Any]) -> Config:
    """Three experts in each group, or 16 at most; a quarter of them, or fewer, for each token."""
    found: Config = {}
    for key in ("num_local_experts", "num_experts", "n_routed_experts"):
        if said.get(key):
            found[key] = min(said[key], max(16, 3 * said.get("n_group", 1)))
            found["num_experts_per_tok"] = min(said["num_experts_per_tok"], found[key] // 4)
    return found


def _position_sizes(said: Mapping[str, Any]) -> Config:
    """Windows and contexts that the tests' few tokens go beyond."""
    found = {key: WINDOW for key in ("sliding_window", "sliding_window_size") if said.get(key)}
    scaling = said.get("rope_scaling") or {}
    trained = scaling.get("original_max_position_embeddings")
    ratio = CONTEXT / trained if trained else 256 / said.get("max_position_embeddings", 256)
    found |= _scaled(said, ratio, "max_position_embeddings")
    if trained:
        found["rope_scaling"] = scaling | {"original_max_position_embeddings": CONTEXT}
    return found
