"""Hugging Face directories load whole or not at all, as their files and their config.json say; logits are transformers'."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hugging_face_folders import SIZES, build, build_with_eyes, change_json, save
from safetensors.torch import load_file, save_file

from twophase.models import hugging_face
from twophase.models.hugging_face import shards
from twophase.models.hugging_face.config import WITH_IMAGES
from twophase.models.hugging_face.families import FAMILIES
from twophase.models.hugging_face.keys import HARMLESS, READ, REFUSED
from twophase.models.hugging_face.shards import INDEX, SINGLE
from twophase.theory.architecture import Architecture

PROMPT = torch.tensor([[5, 17, 300, 8, 8, 91, 250, 3, 77, 120, 41]])  # longer than the windows of these models
# fp32 sums in another order: 1e-6 of the spread and less; anything that is computed differently is far above 1e-4.
CLOSE = 1e-4


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, torch.Tensor]]:
    """Of each family a directory in shards, and the logits of transformers for the prompt."""
    made = {}
    for family in SIZES:
        model = build(family)
        folder = save(model, tmp_path_factory.mktemp(family))
        made[family] = (folder, model(PROMPT).logits)
    model = build_with_eyes()
    made["gemma3"] = (save(model, tmp_path_factory.mktemp("gemma3")), model(input_ids=PROMPT).logits)
    return made


def copy_of(folder: Path, target: Path) -> Path:
    """A directory to damage."""
    target.mkdir(exist_ok=True)
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def one_file(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a directory."""
    tensors: dict[str, torch.Tensor] = {}
    for path in folder.glob("*.safetensors"):
        tensors |= load_file(path)
    return tensors


def rewritten(folder: Path, target: Path, tensors: dict[str, torch.Tensor]) -> Path:
    """The directory with other weights, in one file."""
    target.mkdir(exist_ok=True)
    (target / "config.json").write_bytes((folder / "config.json").read_bytes())
    save_file({key: value.clone() for key, value in tensors.items()}, target / SINGLE)
    return target


def quiet_load(folder: Path, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return hugging_face.load(folder, **options)


def logits_of(folder: Path, **options: Any) -> torch.Tensor:
    return quiet_load(folder, **options)(PROMPT)


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.std())


@pytest.mark.parametrize("family", [*SIZES, "gemma3"])
def test_shards_of_every_family_give_the_logits_of_transformers_and_the_parameters_of_theory(family, folders):
    folder, theirs = folders[family]
    assert len(list(folder.glob("*.safetensors"))) > 1
    model = quiet_load(folder)
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
    assert difference(model(PROMPT), theirs) < CLOSE
    assert model.n_params == Architecture.from_hf(json.loads((folder / "config.json").read_text())).n_params()


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "mixtral"])
def test_one_file_gives_the_same_model_as_its_shards(family, folders, tmp_path):
    folder, _ = folders[family]
    whole = rewritten(folder, tmp_path, one_file(folder))
    assert torch.equal(logits_of(whole), logits_of(folder))


def test_a_base_model_without_the_first_word_of_its_names_loads(tmp_path):
    model = build("gemma2")
    save(model.model, tmp_path)
    assert difference(logits_of(tmp_path), model(PROMPT).logits) < CLOSE


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "deepseek_v3"])
def test_experts_in_one_tensor_are_those_stored_one_by_one(family, folders, tmp_path):
    folder, _ = folders[family]
    apart = one_file(folder)
    packed = {key: value for key, value in apart.items() if ".experts." not in key}
    own = dict(hugging_face.load(folder).state_dict())
    for name in [key for key in own if ".experts.gate_proj" in key]:
        stem = "model." + name.removesuffix(".gate_proj")
        packed[f"{stem}.gate_up_proj"] = torch.cat([own[name], own[name.replace("gate_proj", "up_proj")]], dim=1)
        packed[f"{stem}.down_proj"] = own[name.replace("gate_proj", "down_proj")]
    assert torch.equal(logits_of(rewritten(folder, tmp_path, packed)), logits_of(folder))


# What config.json says


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

    core = {"hidden_size": 128, "intermediate_size": 200, "num_hidden_layers": 12, "vocab_size": 50}
    core |= {"num_attention_heads": 32, "model_type": family, "num_experts_per_tok": 2}
    if "moe" in family or family == "mixtral":
        core["num_local_experts"] = 8
    written = AutoConfig.for_model(**core).to_dict()
    ours, theirs = hugging_face.read_config(core), hugging_face.read_config(written)
    assert {**ours.to_dict(), "context": 0} == {**theirs.to_dict(), "context": 0}


def spelled(family: str, **more: Any) -> Any:
    return hugging_face.read_config(SIZES[family] | {"model_type": family} | more)


LLAMA_3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707, "original_max_position_embeddings": 64, "beta_fast": 32}


@pytest.mark.parametrize(
    ("family", "old", "new"),
    [
        ("llama", {"rope_theta": 5e5}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
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
            {"rope_theta": 5e5, "rope_local_base_freq": 50, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
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
    assert (yarn.rope_pairing, spelled("deepseek_v3", rope_interleave=False).rope_pairing) == ("interleaved", "half")
    stretched = YARN | {"type": "yarn", "factor": None}
    assert spelled("deepseek_v2", rope_scaling=stretched).rope_scaling.factor == 256 / 64
    outside = {"rope_type": "llama3"} | {k: v for k, v in LLAMA_3.items() if not k.startswith("original")}
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
        ("llama", {"rope_scaling": [1]}, "rope_scaling must be an object"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ("llama", {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor 0.5"),
        ("llama", {"sliding_window": 64}, "sliding_window 64 is not supported for model_type 'llama'"),
        ("llama", {"quantization_config": {"quant_method": "fp8"}}, "quantization_config {'quant_method': 'fp8'}"),
        ("llama", {"hidden_act": "relu2"}, "activation 'relu2'"),
        ("llama", {"architectures": ["LlamaForSequenceClassification"]}, "'LlamaForSequenceClassification'"),
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


def test_parts_of_a_model_with_eyes_that_contradict_each_other_are_refused(folders):
    config = json.loads((folders["gemma3"][0] / "config.json").read_text())
    with pytest.raises(ValueError, match="tie_word_embeddings is False, but True in text_config"):
        hugging_face.read_config(config | {"tie_word_embeddings": False})
    with pytest.raises(ValueError, match="final_logit_softcapping in text_config"):
        hugging_face.read_config(config | {"text_config": config["text_config"] | {"final_logit_softcapping": 30.0}})


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


def refusal(config: dict[str, Any]) -> str:
    """What is said about a config; nothing if it is taken."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            hugging_face.read_config(config)
        except ValueError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("family", SIZES)
def test_nonsense_under_any_key_is_a_sentence_or_harmless(family):
    from transformers import AutoConfig

    written = AutoConfig.for_model(family, **SIZES[family]).to_dict()
    more = ["rope_scaling", "rope_theta", "text_config", "layer_types", "architectures", "scoring_func", "topk_method"]
    said = [refusal(written | {key: value}) for key in [*written.keys() - HARMLESS, *more] for value in NONSENSE]
    assert all(sentence.startswith("config.json: ") for sentence in said if sentence)
    assert sum(map(bool, said)) > 150


# Files that are damaged, missing, or another format's


def cut_shard(folder: Path) -> None:
    path = max(folder.glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-1])


def change_index(folder: Path, change: Any) -> None:
    index = json.loads((folder / INDEX).read_text())
    change(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index))


def only(folder: Path, name: str) -> None:
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    (folder / name).write_bytes(b"\x80\x04never read")


DAMAGE = {
    "no config": (lambda f: (f / "config.json").unlink(), "there is no config.json in"),
    "half a config": (lambda f: (f / "config.json").write_text("{"), r"config\.json cannot be read \(Expecting"),
    "a list": (lambda f: (f / "config.json").write_text("[]"), "must hold a JSON object"),
    "no text": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe{"), r"config\.json cannot be read"),
    "half an index": (lambda f: (f / INDEX).write_text('{"weight_map": '), r"index\.json cannot be read"),
    "no map": (lambda f: (f / INDEX).write_text("{}"), 'has no "weight_map"'),
    "a way out": (
        lambda f: change_index(f, lambda m: m.update({"x": "../x.safetensors"})),
        "no .safetensors file beside",
    ),
    "another format": (lambda f: change_index(f, lambda m: m.update({"x": "x.bin"})), "no .safetensors file beside it"),
    "a lost shard": (lambda f: min(f.glob("*.safetensors")).unlink(), "names the shard model-00001-of-"),
    "a cut shard": (cut_shard, r"is damaged or was cut off \(.*\): download it again"),
    "an empty shard": (lambda f: min(f.glob("*.safetensors")).write_bytes(b""), "is damaged or was cut off"),
    "an index with more": (
        lambda f: change_index(f, lambda m: m.update({"x": min(m.values())})),
        "does not hold x, which",
    ),
    "an index with less": (lambda f: change_index(f, lambda m: m.pop("model.norm.weight")), "does not say so"),
    "no index": (lambda f: (f / INDEX).unlink(), "has .safetensors files, but neither"),
    "a pickle": (lambda f: only(f, "pytorch_model.bin"), "holds pickled weights"),
    "another program's": (lambda f: only(f, "model.gguf"), "holds .gguf weights"),
    "nothing": (lambda f: [p.unlink() for p in f.glob("*.safetensors*")], "holds no weights"),
    "a layer more": (lambda f: change_json(f / "config.json", num_hidden_layers=3), "do not hold layers.2."),
    "a layer less": (lambda f: change_json(f / "config.json", num_hidden_layers=1), "layers.1.* has no place"),
    "another width": (
        lambda f: change_json(f / "config.json", intermediate_size=41),
        r"is \[40, 32\], but .* \[41, 32\]",
    ),
    "no head": (
        lambda f: change_index(f, lambda m: None) or _without(f, "lm_head.weight"),
        "do not hold lm_head.weight",
    ),
}


def _without(folder: Path, key: str) -> None:
    tensors = one_file(folder)
    del tensors[key]
    save_file(tensors, folder / SINGLE)


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_one_clear_sentence_and_nothing_is_loaded(damage, folders, tmp_path, monkeypatch):
    folder = copy_of(folders["llama"][0], tmp_path)
    assert hugging_face.load(folder).n_params > 0
    harm, says = DAMAGE[damage]
    harm(folder)
    monkeypatch.setattr(hugging_face.checkpoint, "fill", lambda *_: pytest.fail("a weight was read"))
    with pytest.raises(ValueError, match=says) as caught:
        hugging_face.load(folder)
    assert "\n" not in str(caught.value)


def test_a_file_cut_anywhere_is_noticed_before_a_weight_is_read(folders, tmp_path):
    folder = rewritten(folders["llama"][0], tmp_path, one_file(folders["llama"][0]))
    whole = (folder / SINGLE).read_bytes()
    for length in (*range(0, 12), 100, len(whole) // 2, len(whole) - 1):
        (folder / SINGLE).write_bytes(whole[:length])
        with pytest.raises(ValueError, match="is damaged or was cut off"):
            hugging_face.open_checkpoint(folder)


def test_a_directory_that_is_none_is_named():
    with pytest.raises(ValueError, match="there is no directory nowhere/at all"):
        hugging_face.load("nowhere/at all")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.update({"model.layers.0.mlp.gate.bias": torch.zeros(2)}), "mlp.gate.bias has no place"),
        (
            lambda t: t.update({"model.layers.1.mlp.experts.8.up_proj.weight": torch.zeros(12, 32)}),
            "experts.8.* no place",
        ),
        (lambda t: t.pop("model.layers.1.mlp.experts.3.down_proj.weight"), "experts.down_proj of expert 3"),
        (
            lambda t: t.update({"layers.0.input_layernorm.weight": torch.zeros(32)}),
            "the same parameter under two names",
        ),
        (lambda t: t.update({"model.norm.weight": torch.zeros(32, dtype=torch.int8)}), "stored as I8, which is not"),
        (lambda t: t.pop("model.layers.1.mlp.gate.e_score_correction_bias"), "gate.e_score_correction_bias"),
    ],
)
def test_every_tensor_has_a_place_and_every_parameter_a_tensor(change, says, folders, tmp_path):
    tensors = one_file(folders["deepseek_v3"][0])
    change(tensors)
    with pytest.raises(ValueError, match=says):
        hugging_face.open_checkpoint(rewritten(folders["deepseek_v3"][0], tmp_path, tensors))


def test_what_no_text_model_needs_is_left_aside_and_named(folders, tmp_path):
    with pytest.warns(UserWarning, match="tensors left aside: 34, of the part that sees images"):
        hugging_face.load(folders["gemma3"][0])
    tensors = one_file(folders["deepseek_v3"][0])
    extra = {k.replace("layers.1.", "layers.2."): v for k, v in tensors.items() if "layers.1." in k}
    extra |= {"model.layers.2.eh_proj.weight": torch.zeros(32, 64), "model.layers.2.enorm.weight": torch.zeros(32)}
    extra["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(3)
    folder = rewritten(folders["deepseek_v3"][0], tmp_path, tensors | extra)
    notes = hugging_face.open_checkpoint(folder).notes
    assert any("tensors left aside: 1, of tables of RoPE's angles" in note for note in notes)
    assert any(f"tensors left aside: {len(extra) - 1}, of layers after the last" in note for note in notes)
    assert torch.equal(logits_of(folder), logits_of(folders["deepseek_v3"][0]))
    del extra["model.layers.2.eh_proj.weight"]  # a whole layer too many, and no such head
    with pytest.raises(ValueError, match=r"layers\.2\..* has no place"):
        hugging_face.open_checkpoint(rewritten(folder, tmp_path / "more", tensors | extra))


def test_a_tied_model_with_a_copy_of_its_embedding_loads_and_with_another_matrix_does_not(folders, tmp_path):
    folder, _ = folders["gemma2"]
    tensors = one_file(folder)
    copied = rewritten(folder, tmp_path / "copy", tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]})
    model = hugging_face.load(copied)
    assert model.lm_head.weight is model.embed_tokens.weight
    other = tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1}
    with pytest.raises(ValueError, match=r"another lm_head\.weight: set it to false"):
        hugging_face.load(rewritten(folder, tmp_path / "other", other))


# Dtypes and memory


def test_weights_stay_as_they_are_stored_unless_told_otherwise(folders, tmp_path):
    tensors = {key: value.bfloat16() for key, value in one_file(folders["deepseek_v3"][0]).items()}
    tensors["model.norm.weight"] = tensors["model.norm.weight"].half()  # stored in another dtype than the rest
    folder = rewritten(folders["deepseek_v3"][0], tmp_path, tensors)
    model = hugging_face.load(folder)
    kinds = {name: p.dtype for name, p in model.named_parameters()}
    correction = {name for name in kinds if name.endswith("e_score_correction_bias")}
    assert {kinds.pop(name) for name in correction} == {torch.float32}  # it decides between nearly equal experts
    assert set(kinds.values()) == {torch.bfloat16}
    assert model.new_cache(1, 4).stores[0].nbytes == 4 * (12 + 6) * 2
    wide = hugging_face.load(folder, dtype=torch.float32)
    assert {p.dtype for p in wide.parameters()} == {torch.float32}
    assert difference(model(PROMPT).float(), wide(PROMPT)) < 0.2  # bf16 has 8 bits, and this model two layers
    opened = hugging_face.open_checkpoint(folder)
    assert opened.dtype == torch.bfloat16
    assert opened.weight_bytes() == 2 * model.n_params


def memory(key: str) -> int:
    """Bytes of this process, from the kernel: RssAnon (its own), VmHWM (the most it ever had)."""
    return int(re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


needs_proc = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux says what memory is whose")
WIDE = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 4, "model_type": "llama"}


def large(folder: Path, config: dict[str, Any]) -> int:
    """A random bf16 checkpoint in one file, experts one by one; returns its bytes."""
    from twophase.models.hugging_face.weights import blank

    (folder / "config.json").write_text(json.dumps(config))
    tensors = {}
    for name, value in blank(hugging_face.read_config(config)).state_dict().items():
        key = name if name.startswith("lm_head") else f"model.{name}"
        if ".experts." in name:
            parts = {key.replace("experts.", f"experts.{e}.") + ".weight": value[e] for e in range(value.shape[0])}
        else:
            parts = {key: value}
        tensors |= {k: torch.ones(v.shape, dtype=torch.bfloat16) for k, v in parts.items()}
    save_file(tensors, folder / SINGLE)
    return (folder / SINGLE).stat().st_size


@needs_proc
def test_weights_used_as_they_are_stored_take_no_memory_of_their_own(tmp_path):
    size = large(tmp_path, SIZES["llama"] | WIDE)
    before = memory("RssAnon")
    model = hugging_face.load(tmp_path)
    model(PROMPT)
    assert memory("RssAnon") - before < size / 4  # activations and allocator
    digest = (tmp_path / SINGLE).read_bytes()
    with torch.no_grad():
        model.norm.weight.zero_()  # a view of the file; not the file
    assert (tmp_path / SINGLE).read_bytes() == digest


@needs_proc
def test_weights_that_must_be_copied_are_never_held_twice(tmp_path, monkeypatch):
    config = SIZES["mixtral"] | WIDE | {"model_type": "mixtral", "intermediate_size": 600}
    size = large(tmp_path, config)
    monkeypatch.setattr(shards, "REMAP_BYTES", 2_000_000)
    hugging_face.load(tmp_path)  # whatever torch allocates the first time
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is there now
    before = memory("VmHWM")
    model = hugging_face.load(tmp_path)
    assert memory("VmHWM") - before < 1.3 * size
    assert float(model.layers[3].mlp.experts.up_proj.sum()) == 4 * 600 * 512


def test_progress_counts_every_byte_once_and_ends_at_the_whole(folders):
    for family in ("llama", "mixtral"):
        seen: list[tuple[int, int]] = []
        hugging_face.load(folders[family][0], progress=lambda *counts, seen=seen: seen.append(counts))
        total = sum(t.nbytes for t in one_file(folders[family][0]).values())
        assert seen[-1] == (total, total)
        assert [done for done, _ in seen] == sorted({done for done, _ in seen})
