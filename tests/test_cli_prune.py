"""`twophase prune`: what it says is true of the model it wrote, `generate` and transformers run it,
and what cannot be done is one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hugging_face_folders import build, byte_level, save
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from twophase.cli.main import build as build_app
from twophase.models import checkpoints, corpus, hugging_face
from twophase.models.pruning import Kept, cut
from twophase.models.pruning.directory import load
from twophase.models.pruning.directory import save as save_pruned
from twophase.models.quantize.texts import text_bits_per_byte

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.py"
    path.write_bytes(corpus.load("held_out")[:3000].tobytes())
    return path


def run(*arguments: object) -> Any:
    """The command line in this process, as `twophase` has it."""
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(build_app([words[0]]), words)


def transformers_logits(folder: Path, tokens: torch.Tensor) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits: torch.Tensor = model.eval()(tokens).logits
    return logits


def test_a_checkpoint_of_the_course_is_pruned_runs_and_loads_in_transformers(
    text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "made"
    done = run(
        "prune", "gqa", "--keep", "layers=3,kv_heads=1,channels=50%,width=96", "--out", out,
        "--calibrate", text, "--held-out", text, "--windows", 2, "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    model = load(out, torch.float32)
    c = model.config
    assert (c.L, c.N, c.K, c.F, c.D) == (3, 2, 1, 128, 96)
    assert facts["n_params"] == [checkpoints.load("gqa").n_params, model.n_params]
    found = text_bits_per_byte(model, text.read_bytes(), None, 256)
    assert facts["bits_per_byte"][1] == pytest.approx(found, abs=1e-4)
    kept = {stage["unit"]: stage["kept"] for stage in facts["stages"]}
    assert list(kept) == ["layers", "heads", "channels", "width"]
    assert len(kept["layers"]) == 3
    assert [len(kept["channels"][str(i)]) for i in range(3)] == [128] * 3
    spoken = run("generate", "--checkpoint", out, "--tokens", 5, "def ", "--json")
    assert spoken.exit_code == 0, spoken.output
    assert json.loads(spoken.stdout)["n_tokens"] == 5
    assert facts["transformers"]
    assert torch.allclose(transformers_logits(out, TOKENS), model(TOKENS), atol=1e-4)
    again = run("prune", "gqa", "--keep", "layers=2", "--out", out, "--calibrate", text,
                "--held-out", text, "--windows", 2)  # fmt: skip
    assert again.exit_code == 0, again.output  # what was pruned here may be written over
    assert "% less" in again.stdout


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral", "gemma"])
def test_what_is_cut_of_a_hugging_face_directory_says_the_same_in_transformers(
    family: str, text: Path, tmp_path: Path
) -> None:
    folder, out = save(build(family), tmp_path / family, byte_level()), tmp_path / "made"
    done = run(
        "prune", folder, "--keep", "layers=1,kv_heads=1,channels=30", "--out", out,
        "--measure", "activation", "--calibrate", text, "--held-out", text, "--windows", 2,
        "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["transformers"]
    model = load(out)
    assert torch.allclose(transformers_logits(out, TOKENS), model(TOKENS), atol=1e-4, rtol=1e-4)
    as_theirs = hugging_face.load(out)
    assert torch.equal(as_theirs(TOKENS), model(TOKENS))
    for words in (["the cat sat"], ["--token-ids", "5 6 7"]):
        spoken = run("generate", "--checkpoint", out, "--tokens", 4, *words, "--json")
        assert spoken.exit_code == 0, spoken.output


def test_layers_of_different_widths_are_written_and_only_ours_to_read(tmp_path: Path) -> None:
    model = checkpoints.load("gqa")
    small = cut(model, Kept(channels={0: range(100), 2: range(7)}, heads={1: [2, 3]}))
    assert not save_pruned(small.bfloat16(), tmp_path / "made", {})
    assert torch.equal(load(tmp_path / "made")(TOKENS), small(TOKENS))
    assert not (tmp_path / "made" / "config.json").exists()


def test_damage_is_a_sentence(tmp_path: Path) -> None:
    out = tmp_path / "made"
    save_pruned(cut(checkpoints.load("gqa"), Kept(layers=[0])), out, {})
    weights = load_file(out / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"][:-1].clone()
    save_file(weights, out / "model.safetensors")
    with pytest.raises(ValueError, match=r"does not fit its card at norm\.weight: prune again"):
        load(out)
    (out / "model.safetensors").write_bytes(b"none")
    with pytest.raises(ValueError, match="cannot be read"):
        load(out)
    (out / "pruned.json").write_text("{}")
    with pytest.raises(ValueError, match="cannot be read"):
        load(out)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["gqa", "--keep", "layer=3"], "--keep names each of layers, kv_heads, channels, width"),
        (["gqa", "--keep", "layers=0"], "with a whole number or percent from 1 on"),
        (["gqa", "--keep", "layers=1,layers=2"], "once at most"),
        (["gqa", "--keep", "layers=9"], "--keep layers=9: this model has 4"),
        (["gqa", "--keep", "layers=200%"], "this model has 4"),
        (["gqa", "--keep", "layers=2", "--measure", "size"], "--measure is one of activation"),
        (["gpa", "--keep", "layers=2"], "neither a directory nor one of"),
        (["moe", "--keep", "channels=2"], "has no channels that can be cut"),
        (["mla", "--keep", "width=90"], "a part that is not cut here"),
        (["mla", "--keep", "kv_heads=1"], "has no heads that can be cut"),
        (["diffusion", "--keep", "layers=3"], "reads both ways (masked diffusion)"),
        (["gqa", "--keep", "layers=2", "--windows", "0"], "at least one window"),
        (["gqa", "--keep", "layers=2", "--calibrate", "none.txt"], "none.txt cannot be read"),
    ],
)
def test_what_cannot_be_pruned_is_one_sentence(words: list[str], sentence: str, tmp_path) -> None:
    done = run("prune", *words, "--out", tmp_path / "made")
    assert done.exit_code == 2
    assert sentence in done.stderr.replace("\n", " ")
    assert not (tmp_path / "made" / "pruned.json").exists()


def test_other_files_are_not_written_over(text: Path, tmp_path: Path) -> None:
    done = run("prune", "gqa", "--keep", "layers=2", "--out", tmp_path)
    assert done.exit_code == 2
    assert "holds other files" in done.stderr
