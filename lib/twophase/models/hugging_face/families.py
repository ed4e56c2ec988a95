"""What each family has in its Config beyond the sizes: scales, caps, pairings, routing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

from twophase.kernels.mixture_of_experts import check_routing
from twophase.models.hugging_face.rope import partial_rope_fields, rope_fields, score_factor
from twophase.models.layer_sizes import Routing
from twophase.theory.hugging_face.values import count, flag, need, number, size

Json = Mapping[str, Any]
Fields = dict[str, Any]  # of a Config


@dataclass(frozen=True)
class Family:
    """How its classes begin, what its Config has beyond the sizes, and which keys it reads that
    others must not have."""

    prefix: str
    more: Callable[[Json], Fields] = rope_fields
    reads: frozenset[str] = field(default=frozenset())


def _mixtral(text: Json) -> Fields:
    """Softmax over all experts, the weights of the chosen ones divided by their sum."""
    return rope_fields(text) | {"routing": Routing(score="softmax", normalize=True)}


def _qwen3_moe(text: Json) -> Fields:
    _expect(text, "use_qk_norm", True)
    return rope_fields(text) | {
        "routing": Routing(score="softmax", normalize=flag(text, "norm_topk_prob"))
    }


def _gemma(text: Json) -> Fields:
    """Norm weights stored minus one, embeddings times sqrt(D)."""
    said = text.get("hidden_activation")
    if text["model_type"] == "gemma" and said not in (None, text["hidden_act"]):
        raise ValueError(
            f"hidden_act {text['hidden_act']!r} and hidden_activation {said!r} contradict each"
            " other: releases of transformers disagree about which counts; keep one of the two."
        )
    return rope_fields(text) | {
        "norm_offset": 1.0,
        "embedding_scale": sqrt(size(text, "hidden_size")),
    }


def _gemma2(text: Json) -> Fields:
    """Gemma with scores by a number of their own and caps on both logits."""
    return _gemma(text) | {
        "score_scale": 1 / sqrt(number(text, "query_pre_attn_scalar", 256)),
        "score_cap": _cap(text, "attn_logit_softcapping"),
        "logit_cap": _cap(text, "final_logit_softcapping"),
    }


def _gemma3(text: Json) -> Fields:
    """Gemma 2 without a cap on scores."""
    if text.get("attn_logit_softcapping") is not None:
        raise ValueError(
            f"attn_logit_softcapping {text['attn_logit_softcapping']!r} is not supported for Gemma"
            " 3: its implementations read it and do not use it."
        )
    return _gemma2(text)


def _cap(text: Json, key: str) -> float | None:
    return None if text.get(key) is None else number(text, key, 1.0)


def _deepseek(text: Json) -> Fields:
    """Latent attention; with YaRN the scores have a factor besides 1/sqrt(H)."""
    fields = rope_fields(text)
    R = size(text, "qk_rope_head_dim")
    H = size(text, "qk_nope_head_dim") + R
    allowed = {
        "qk_head_dim": (H,),
        "head_dim": (R, H),  # newer files mean the turned part
    }
    for key, values in allowed.items():
        if text.get(key) is not None and text[key] not in values:
            raise ValueError(
                f"{key} {text[key]} contradicts qk_rope_head_dim and qk_nope_head_dim, by which it"
                f" is {values[0]}."
            )
    return fields | {"score_scale": score_factor(fields["rope_scaling"]) / sqrt(H)}


def _deepseek_v2(text: Json) -> Fields:
    """Interleaved RoPE; softmax scores, all experts or those of the groups with the best single
    expert."""
    _expect(text, "scoring_func", "softmax")
    _expect(text, "rope_interleave", True)
    method = text.get("topk_method")
    if method not in ("greedy", "group_limited_greedy"):
        raise ValueError(
            f"topk_method {method!r} is not supported; supported: greedy, group_limited_greedy."
        )
    if text.get("norm_topk_prob"):
        raise ValueError(
            "norm_topk_prob true is not supported for deepseek_v2: its implementations disagree"
            " about it."
        )
    groups = _groups(text, group_top=1) if method == "group_limited_greedy" else {}
    routing = Routing(
        "softmax", normalize=False, scale=number(text, "routed_scaling_factor", 1.0), **groups
    )
    return _deepseek(text) | {"rope_pairing": "interleaved", "routing": routing}


def _deepseek_v3(text: Json) -> Fields:
    """Sigmoid scores with a correction for the choice; groups by the sum of their two best
    experts."""
    pairing = "interleaved" if flag(text, "rope_interleave") else "half"
    return _deepseek(text) | {"rope_pairing": pairing, "routing": _sigmoid_routing(text)}


def _glm4_moe(text: Json) -> Fields:
    """DeepSeek-V3's experts behind grouped queries; half of each head is turned."""
    return partial_rope_fields(text, 0.5) | {"routing": _sigmoid_routing(text)}


def _sigmoid_routing(text: Json) -> Routing:
    _expect(text, "scoring_func", "sigmoid")
    _expect(text, "topk_method", "noaux_tc")
    groups = _groups(text, group_top=2) if count(text, "n_group") > 1 else {}
    return Routing(
        "sigmoid",
        normalize=flag(text, "norm_topk_prob"),
        scale=number(text, "routed_scaling_factor", 1.0),
        **groups,
    )


def _stablelm(text: Json) -> Fields:
    """A quarter of each head is turned."""
    return partial_rope_fields(text, 0.25)


def _starcoder2(text: Json) -> Fields:
    _expect(text, "norm_type", "layer_norm")
    return rope_fields(text)


def _groups(text: Json, group_top: int) -> dict[str, int]:
    """Experts in groups, of which a token visits the best, judged by their `group_top` best
    experts."""
    groups, kept = size(text, "n_group"), size(text, "topk_group")
    E, k = size(text, "n_routed_experts"), size(text, "num_experts_per_tok")
    try:
        check_routing(E, k, groups, kept, group_top)
    except ValueError as error:
        raise ValueError(f"n_group {groups}, topk_group {kept}: {error}") from None
    return {"groups": groups, "groups_kept": kept, "group_top": group_top}


def _expect(text: Json, key: str, value: Any) -> None:
    """A key that says what this family does anyway; ValueError if it says something else."""
    if need({**text, key: value} if text.get(key) is None else text, key) != value:
        raise ValueError(
            f"{key} {text[key]!r} is not supported for {text['model_type']}; supported: {value!r}."
        )


_WINDOW = frozenset({"sliding_window", "layer_types"})
_QWEN = _WINDOW | {"use_sliding_window"}
_GEMMA = _WINDOW | {"query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"}
_ROUTED = frozenset(
    {
        "norm_topk_prob",
        "n_group",
        "topk_group",
        "topk_method",
        "scoring_func",
        "routed_scaling_factor",
    }
)
_DEEPSEEK = _ROUTED | {"rope_interleave"}

FAMILIES = {
    "llama": Family("Llama"),
    "mistral": Family("Mistral", reads=_WINDOW),
    "mixtral": Family("Mixtral", _mixtral, _WINDOW),
    "qwen2": Family("Qwen2", reads=_QWEN),
    "qwen3": Family("Qwen3", reads=_QWEN),
    "qwen3_moe": Family("Qwen3Moe", _qwen3_moe, _QWEN | {"norm_topk_prob", "use_qk_norm"}),
    "gemma": Family("Gemma", _gemma),
    "gemma2": Family("Gemma2", _gemma2, _GEMMA),
    "gemma3_text": Family(
        "Gemma3", _gemma3, _GEMMA | {"rope_local_base_freq", "sliding_window_pattern"}
    ),
    "deepseek_v2": Family("DeepseekV2", _deepseek_v2, _DEEPSEEK),
    "deepseek_v3": Family("DeepseekV3", _deepseek_v3, _DEEPSEEK),
    "glm4_moe": Family("Glm4Moe", _glm4_moe, _ROUTED | {"use_qk_norm"}),
    "stablelm": Family("StableLm", _stablelm),
    "starcoder2": Family("Starcoder2", _starcoder2, _WINDOW | {"norm_type"}),
}
