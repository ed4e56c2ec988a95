"""What a config.json says becomes our Config, in every spelling, or is refused by name;
transformers is the oracle."""

from typing import Any

import pytest
from hugging_face_folders import SIZES, refusal

from twophase.models import hugging_face
from twophase.models.hugging_face.config import WITH_IMAGES
from twophase.models.hugging_face.families import FAMILIES
from twophase.models.hugging_face.keys import HARMLESS, READ, REFUSED


@pytest.mark.parametrize("family", [*SIZES, "gemma3"])
def test_no_key_of_transformers_own_configs_is_on_no_list(family):
    from transformers import AutoConfig

    written = AutoConfig.for_model(family, **SIZES.get(family, {})).to_dict()
    assert written.keys() <= READ | HARMLESS | REFUSED.keys()
    assert not READ & HARMLESS
    assert not HARMLESS & REFUSED.keys()


@pytest.mark.parametrize("family", SIZES)
def test_a_key_that_is_left_out_means_what_transformers_takes_it_for(family):
    from transformers import AutoConfig

    core = {"hidden_size": 256, "intermediate_size": 200, "num_hidden_layers": 12, "vocab_size": 50}
    core |= {"num_attention_heads": 32, "model_type": family, "num_experts_per_tok": 2}
    if family in ("qwen3_moe", "mixtral"):
        core["num_local_experts"] = 8
    written = AutoConfig.for_model(**core).to_dict()
    ours, theirs = hugging_face.read_config(core), hugging_face.read_config(written)
    assert {**ours.to_dict(), "context": 0} == {**theirs.to_dict(), "context": 0}


def spelled(family: str, **more: Any) -> Any:
    return hugging_face.read_config(SIZES[family] | {"model_type": family} | more)


LLAMA_3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "factor": 40,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
    "original_max_position_embeddings": 64,
    "beta_fast": 32,
}


@pytest.mark.parametrize(
    ("family", "old", "new"),
    [
        (
            "llama",
            {"rope_theta": 5e5},
            {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        ),
        (
            "llama",
            {"rope_theta": 5e5, "rope_scaling": LLAMA_3 | {"rope_type": "llama3"}},
            {"rope_parameters": LLAMA_3 | {"rope_type": "llama3", "rope_theta": 5e5}},
        ),
        (
            "deepseek_v2",
            {"rope_theta": 500, "rope_scaling": YARN | {"type": "yarn"}},
            {"rope_parameters": YARN | {"rope_type": "yarn", "rope_theta": 500}},
        ),
        (
            "gemma3_text",
            {
                "rope_theta": 5e5,
                "rope_local_base_freq": 50,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 50},
                }
            },
        ),
        ("qwen3_moe", {"num_experts": 4}, {"num_experts": None, "num_local_experts": 4}),
        ("mistral", {"torch_dtype": "bfloat16"}, {"dtype": "bfloat16"}),
    ],
)
def test_old_and_new_spellings_say_the_same(family, old, new):
    assert spelled(family, **old) == spelled(family, **new)


def test_a_config_holds_what_is_said_about_rope_and_scores():
    linear = spelled("llama", rope_scaling={"type": "linear", "factor": 4})
    assert (linear.rope_scaling.kind, linear.rope_scaling.factor) == ("linear", 4.0)
    yarn = spelled("deepseek_v2", rope_scaling=YARN | {"type": "yarn"})
    correction = 0.1 * 0.707 * 3.6888794541139363 + 1  # ln 40
    assert yarn.score_scale == pytest.approx(correction**2 / 14**0.5, rel=1e-12)
    assert spelled("deepseek_v2").score_scale == pytest.approx(14**-0.5, rel=1e-12)
    assert (yarn.rope_pairing, spelled("deepseek_v3", rope_interleave=False).rope_pairing) == (
        "interleaved",
        "half",
    )
    stretched = YARN | {"type": "yarn", "factor": None}
    assert spelled("deepseek_v2", rope_scaling=stretched).rope_scaling.factor == 256 / 64
    outside = {"rope_type": "llama3"} | {
        k: v for k, v in LLAMA_3.items() if not k.startswith("original")
    }
    found = spelled("llama", rope_scaling=outside, original_max_position_embeddings=32)
    assert found.rope_scaling.original_context == 32


def test_dense_layers_before_the_experts_are_supported_anywhere_else_not():
    assert spelled("qwen3_moe", mlp_only_layers=[0]).moe.n_dense_layers == 1
    with pytest.raises(ValueError, match=r"mlp_only_layers' is \[1\]"):
        spelled("qwen3_moe", mlp_only_layers=[1])


@pytest.mark.parametrize(
    ("family", "more", "says"),
    [
        ("llama", {"rope_scaling": {"rope_type": "longrope", "factor": 4}},
         "rope_scaling type 'longrope' is not supported; supported: linear, llama3, yarn"),
        ("llama", {"rope_parameters": {"type": "dynamic", "factor": 2}}, "rope_parameters type 'dynamic'"),
        ("llama", {"rope_scaling": {"type": "linear"}}, "rope_scaling has no factor"),
        ("llama", {"rope_scaling": {"type": "linear", "factor": "x"}}, "'factor' must be a positive number"),
        ("llama", {"rope_scaling": {"type": "linear", "factor": 2, "mscale": 1}}, "type 'linear': mscale 1"),
        ("llama", {"rope_scaling": {"type": "default", "mrope_section": [1]}}, r"mrope_section \[1\]"),
        ("llama", {"rope_scaling": LLAMA_3 | {"type": "llama3", "high_freq_factor": 1.0}}, "must be below"),
        ("llama", {"rope_scaling": [1]}, "'rope_scaling' must be an object"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ("llama", {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor 0.5"),
        ("llama", {"sliding_window": 64}, "sliding_window 64 is not supported for model_type 'llama'"),
        ("llama", {"quantization_config": {"quant_method": "fp8"}}, "quantization_config {'quant_method': 'fp8'}"),
        ("llama", {"hidden_act": "relu2"}, "activation 'relu2'"),
        ("llama", {"architectures": ["LlamaForSequenceClassification"]}, "'LlamaForSequenceClassification'"),
        ("llama", {"architectures": ["MistralForCausalLM"]},
         "'MistralForCausalLM' is not supported with model_type 'llama'"),
        ("llama", {"residual_multiplier": 0.2}, "residual_multiplier 0.2"),
        ("llama", {"per_layer_config": {"0": {"num_key_value_heads": 1}}}, "per_layer_config"),
        ("llama", {"head_dim": 7}, "must be even"),
        ("llama", {"hidden_size": None}, "no key 'hidden_size'"),
        ("qwen2", {"layer_types": ["sliding_attention", "full_attention"]}, "'use_sliding_window' is not set"),
        ("qwen2", {"use_mrope": True}, "use_mrope True"),
        ("mistral", {"layer_types": ["sliding_attention", "full_attention"]}, "'layer_types' is not supported where"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step"),
        ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention True"),
        ("gemma2", {"layer_types": ["sliding_attention", "chunked_attention"]}, "'chunked_attention'"),
        ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping 50.0"),
        ("gemma3_text", {"rope_parameters": {"rope_type": "default"}}, "full_attention and sliding_attention"),
        ("gemma3_text", {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
         "sliding layers with scaled positions"),
        ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob true"),
        ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method 'noaux_tc'"),
        ("deepseek_v2", {"rope_scaling": {"type": "yarn", "factor": 4, "mscale": 1.0}}, "supported together only"),
        ("deepseek_v2", {"mlp_bias": True}, "mlp_bias true"),
        ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func 'softmax'"),
        ("deepseek_v3", {"moe_layer_freq": 2}, "moe_layer_freq"),
        ("deepseek_v3", {"index_topk": 64}, "index_topk 64"),
        ("deepseek_v3", {"n_group": 3}, "8 experts"),
    ],
)  # fmt: skip
def test_what_would_change_the_result_is_refused_by_its_name_and_value(family, more, says):
    with pytest.raises(ValueError, match=says) as caught:
        hugging_face.read_config(SIZES[family] | {"model_type": family} | more)
    assert str(caught.value).startswith("config.json: ")
    assert "\n" not in str(caught.value)


def test_a_key_that_nothing_is_known_about_is_named_and_ignored():
    plain = spelled("llama")
    with pytest.warns(UserWarning, match="nothing is known about brand_new, other_new: ignored"):
        assert spelled("llama", other_new=1, brand_new=[2]) == plain


def test_other_model_types_are_refused_also_where_they_have_a_known_text_part():
    for config in (
        {"model_type": "gpt2"},
        {"model_type": "mistral3", "text_config": {"model_type": "mistral"}},
        {},
        [],
    ):
        with pytest.raises(ValueError, match=r"config\.json: .*model_type|JSON object"):
            hugging_face.read_config(config)
    assert set(SIZES) == set(FAMILIES)
    assert list(WITH_IMAGES) == ["gemma3"]


def test_the_types_named_where_one_is_refused_are_those_that_are_read():
    named = refusal({"model_type": "gpt2"}).partition("supported: ")[2].rstrip(".").split(", ")
    assert set(named) == {*FAMILIES, *WITH_IMAGES}
    for kind in named:
        assert "model_type" not in refusal({"model_type": kind}).replace("of model_type", "")
    inner = {"model_type": "gemma3", "text_config": {"model_type": "gpt2"}}
    assert "text_config of model_type 'gpt2' is not supported in a gemma3" in refusal(inner)


def test_parts_of_a_model_with_eyes_that_contradict_each_other_are_refused():
    text = SIZES["gemma3_text"] | {"model_type": "gemma3_text", "tie_word_embeddings": True}
    config = {
        "model_type": "gemma3",
        "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": text,
    }
    assert hugging_face.read_config(config) == hugging_face.read_config(text)
    with pytest.raises(ValueError, match="tie_word_embeddings is False, but True in text_config"):
        hugging_face.read_config(config | {"tie_word_embeddings": False})
    with pytest.raises(ValueError, match="final_logit_softcapping in text_config"):
        hugging_face.read_config(
            config | {"text_config": config["text_config"] | {"final_logit_softcapping": 30.0}}
        )


NONSENSE = [
    None,
    True,
    0,
    -1,
    2.5,
    10**12,
    float("nan"),
    "x",
    "",
    [],
    [1],
    ["x"],
    {},
    {"rope_type": ["x"]},
    {"factor": {}},
    [[]],
]


@pytest.mark.parametrize("family", SIZES)
def test_nonsense_under_any_key_is_a_sentence_or_harmless(family):
    from transformers import AutoConfig

    written = AutoConfig.for_model(family, **SIZES[family]).to_dict()
    more = [
        "rope_scaling",
        "rope_theta",
        "text_config",
        "layer_types",
        "architectures",
        "scoring_func",
        "topk_method",
    ]
    said = [
        refusal(written | {key: value})
        for key in [*written.keys() - HARMLESS, *more]
        for value in NONSENSE
    ]
    assert all(sentence.startswith("config.json: ") for sentence in said if sentence)
    assert sum(map(bool, said)) > 150
