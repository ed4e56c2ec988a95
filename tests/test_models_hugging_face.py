"""Hugging Face directories load whole or not at all, and once; logits are transformers'. Configs:
test_hugging_face_config."""

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hugging_face_folders import SIZES, build, build_with_eyes, change_json, save
from safetensors.torch import load_file, save_file

from twophase.models import hugging_face
from twophase.models.hugging_face.shards import INDEX, SINGLE
from twophase.theory.architecture import Architecture

PROMPT = torch.tensor(
    [[5, 17, 300, 8, 8, 91, 250, 3, 77, 120, 41]]
)  # longer than the windows of these models
# fp32 sums in another order: 1e-6 of the spread and less; anything that is computed differently is
# far above 1e-4.
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
    made["gemma3"] = (
        save(model, tmp_path_factory.mktemp("gemma3")),
        model(input_ids=PROMPT).logits,
    )
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


def assert_same_model(one: Path, other: Path) -> None:
    """The same weights, bit for bit, and logits as close as memory of another alignment allows."""
    ours, theirs = quiet_load(one), quiet_load(other)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)
    assert difference(ours(PROMPT), theirs(PROMPT)) < CLOSE


@pytest.mark.parametrize("family", [*SIZES, "gemma3"])
def test_shards_of_every_family_give_the_logits_of_transformers_and_the_parameters_of_theory(
    family, folders
):
    folder, theirs = folders[family]
    assert len(list(folder.glob("*.safetensors"))) > 1
    model = quiet_load(folder)
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
    assert difference(model(PROMPT), theirs) < CLOSE
    assert (
        model.n_params
        == Architecture.from_hf(json.loads((folder / "config.json").read_text())).n_params()
    )


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "mixtral"])
def test_one_file_gives_the_same_model_as_its_shards(family, folders, tmp_path):
    folder, _ = folders[family]
    whole = rewritten(folder, tmp_path, one_file(folder))
    assert_same_model(whole, folder)


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
        packed[f"{stem}.gate_up_proj"] = torch.cat(
            [own[name], own[name.replace("gate_proj", "up_proj")]], dim=1
        )
        packed[f"{stem}.down_proj"] = own[name.replace("gate_proj", "down_proj")]
    assert_same_model(rewritten(folder, tmp_path, packed), folder)


# Files that are damaged, missing, or another format's


def cut_shard(folder: Path) -> None:
    path = max(folder.glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-1])


def replaced(folder: Path, name: str, by: Callable[[Path], None]) -> None:
    (folder / name).unlink()
    by(folder / name)


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
    "half a config": (
        lambda f: (f / "config.json").write_text("{"),
        r"config\.json cannot be read \(Expecting",
    ),
    "a link to nothing": (
        lambda f: replaced(f, "config.json", lambda path: path.symlink_to("nowhere")),
        r"config\.json is a link to nowhere, which is not there",
    ),
    "a pipe": (
        lambda f: replaced(f, "config.json", os.mkfifo),  # to read it would take forever
        r"config\.json must be a file, but it is something else",
    ),
    "a folder for a file": (
        lambda f: replaced(f, INDEX, Path.mkdir),
        "has .safetensors files, but neither",
    ),
    "a list": (lambda f: (f / "config.json").write_text("[]"), "must hold a JSON object"),
    "no text": (
        lambda f: (f / "config.json").write_bytes(b"\xff\xfe{"),
        r"config\.json cannot be read",
    ),
    "half an index": (
        lambda f: (f / INDEX).write_text('{"weight_map": '),
        r"index\.json cannot be read",
    ),
    "no map": (lambda f: (f / INDEX).write_text("{}"), 'has no "weight_map"'),
    "a way out": (
        lambda f: change_index(f, lambda m: m.update({"x": "../x.safetensors"})),
        "no .safetensors file beside",
    ),
    "another format": (
        lambda f: change_index(f, lambda m: m.update({"x": "x.bin"})),
        "no .safetensors file beside it",
    ),
    "a lost shard": (
        lambda f: min(f.glob("*.safetensors")).unlink(),
        "names the shard model-00001-of-",
    ),
    "a cut shard": (cut_shard, r"is damaged or was cut off \(.*\): download it again"),
    "an empty shard": (
        lambda f: min(f.glob("*.safetensors")).write_bytes(b""),
        "is damaged or was cut off",
    ),
    "an index with more": (
        lambda f: change_index(f, lambda m: m.update({"x": min(m.values())})),
        "does not hold x, which",
    ),
    "an index with less": (
        lambda f: change_index(f, lambda m: m.pop("model.norm.weight")),
        "does not say so",
    ),
    "no index": (lambda f: (f / INDEX).unlink(), "has .safetensors files, but neither"),
    "a pickle": (lambda f: only(f, "pytorch_model.bin"), "holds pickled weights"),
    "another program's": (lambda f: only(f, "model.gguf"), "holds .gguf weights"),
    "nothing": (lambda f: [p.unlink() for p in f.glob("*.safetensors*")], "holds no weights"),
    "a layer more": (
        lambda f: change_json(f / "config.json", num_hidden_layers=3),
        "do not hold layers.2.",
    ),
    "a layer less": (
        lambda f: change_json(f / "config.json", num_hidden_layers=1),
        "layers.1.* has no place",
    ),
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
    monkeypatch.setattr(
        hugging_face.checkpoint, "fill", lambda *_: pytest.fail("a weight was read")
    )
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
        (
            lambda t: t.update({"model.layers.0.mlp.gate.bias": torch.zeros(2)}),
            "mlp.gate.bias has no place",
        ),
        (
            lambda t: t.update(
                {"model.layers.1.mlp.experts.8.up_proj.weight": torch.zeros(12, 32)}
            ),
            "experts.8.* no place",
        ),
        (
            lambda t: t.pop("model.layers.1.mlp.experts.3.down_proj.weight"),
            "experts.down_proj of expert 3",
        ),
        (
            lambda t: t.update({"layers.0.input_layernorm.weight": torch.zeros(32)}),
            "the same parameter under two names",
        ),
        (
            lambda t: t.update({"model.norm.weight": torch.zeros(32, dtype=torch.int8)}),
            "stored as I8, which is not",
        ),
        (
            lambda t: t.pop("model.layers.1.mlp.gate.e_score_correction_bias"),
            "gate.e_score_correction_bias",
        ),
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
    extra |= {
        "model.layers.2.eh_proj.weight": torch.zeros(32, 64),
        "model.layers.2.enorm.weight": torch.zeros(32),
    }
    extra["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(3)
    folder = rewritten(folders["deepseek_v3"][0], tmp_path, tensors | extra)
    notes = hugging_face.open_checkpoint(folder).notes
    assert any("tensors left aside: 1, of tables of RoPE's angles" in note for note in notes)
    assert any(
        f"tensors left aside: {len(extra) - 1}, of layers after the last" in note for note in notes
    )
    assert_same_model(folder, folders["deepseek_v3"][0])
    del extra["model.layers.2.eh_proj.weight"]  # a whole layer too many, and no such head
    with pytest.raises(ValueError, match=r"layers\.2\..* has no place"):
        hugging_face.open_checkpoint(rewritten(folder, tmp_path / "more", tensors | extra))


def test_a_tied_model_with_a_copy_of_its_embedding_loads_and_with_another_matrix_does_not(
    folders, tmp_path
):
    folder, _ = folders["gemma2"]
    tensors = one_file(folder)
    copied = rewritten(
        folder,
        tmp_path / "copy",
        tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]},
    )
    model = hugging_face.load(copied)
    assert model.lm_head.weight is model.embed_tokens.weight
    other = tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1}
    with pytest.raises(ValueError, match=r"another lm_head\.weight: set it to false"):
        hugging_face.load(rewritten(folder, tmp_path / "other", other))


# Dtypes and memory


def test_weights_stay_as_they_are_stored_unless_told_otherwise(folders, tmp_path):
    tensors = {key: value.bfloat16() for key, value in one_file(folders["deepseek_v3"][0]).items()}
    tensors["model.norm.weight"] = tensors[
        "model.norm.weight"
    ].half()  # stored in another dtype than the rest
    folder = rewritten(folders["deepseek_v3"][0], tmp_path, tensors)
    model = hugging_face.load(folder)
    kinds = {name: p.dtype for name, p in model.named_parameters()}
    correction = {name for name in kinds if name.endswith("e_score_correction_bias")}
    assert {kinds.pop(name) for name in correction} == {
        torch.float32
    }  # it decides between nearly equal experts
    assert set(kinds.values()) == {torch.bfloat16}
    assert model.new_cache(1, 4).stores[0].nbytes == 4 * (12 + 6) * 2
    wide = hugging_face.load(folder, dtype=torch.float32)
    assert {p.dtype for p in wide.parameters()} == {torch.float32}
    assert (
        difference(model(PROMPT).float(), wide(PROMPT)) < 0.2
    )  # bf16 has 8 bits, and this model two layers
    opened = hugging_face.open_checkpoint(folder)
    assert opened.dtype == torch.bfloat16
    assert opened.weight_bytes() == 2 * model.n_params


def test_progress_counts_every_byte_once_and_ends_at_the_whole(folders):
    for family in ("llama", "mixtral"):
        seen: list[tuple[int, int]] = []
        hugging_face.load(
            folders[family][0], progress=lambda *counts, seen=seen: seen.append(counts)
        )
        total = sum(t.nbytes for t in one_file(folders[family][0]).values())
        assert seen[-1] == (total, total)
        assert [done for done, _ in seen] == sorted({done for done, _ in seen})
