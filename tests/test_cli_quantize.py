"""`twophase quantize`: the facts it prints are those of the model it wrote, `generate` runs it, and
what cannot be done is one sentence."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hugging_face_folders import build, byte_level, save
from typer.testing import CliRunner

from twophase.cli.main import build as build_app
from twophase.cli.quantize import quantize
from twophase.kernels.quantization.named import NAMED
from twophase.models import checkpoints, corpus
from twophase.models.evaluate import bits_per_byte
from twophase.models.linear import linears
from twophase.models.pruning.directory import load as read_pruned
from twophase.models.quantize import weight_bytes
from twophase.models.quantize.directory import load
from twophase.models.quantize.texts import text_bits_per_byte


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.py"
    path.write_bytes(corpus.load("held_out")[:3000].tobytes())
    return path


def run(*arguments: object) -> Any:
    """The command line in this process, as `twophase` has it."""
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(build_app([words[0]]), words)


@pytest.mark.parametrize("method", ["gptq", "awq, clipped"])
def test_a_checkpoint_of_the_course_is_quantized_and_runs(
    method: str, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "made"
    words = ["awq", "--clip"] if method == "awq, clipped" else [method]
    done = run(
        "quantize", "gqa", "--out", out, "--method", *words, "--bits", 4, "--group", 64, "--affine",
        "--text", text, "--held-out", text, "--windows", 2, "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    model = load(out)
    assert facts["weight_bytes"] == [weight_bytes(checkpoints.load("gqa")), weight_bytes(model)]
    found = text_bits_per_byte(model, text.read_bytes(), None, 256)
    assert facts["bits_per_byte"][1] == pytest.approx(found, abs=1e-6)
    said = json.loads((out / "quantized.json").read_text())
    assert said["format"]["bits"] == 4
    assert said["method"] == method == facts["method"]
    spoken = run("generate", "--checkpoint", out, "--tokens", 5, "def ", "--json")
    assert spoken.exit_code == 0, spoken.output
    assert json.loads(spoken.stdout)["n_tokens"] == 5


def test_a_named_format_is_quantized_runs_and_says_which_matrices_are_in_which(
    text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "made"
    texts = "--held-out", text
    done = run("quantize", "gqa", "--format", "q4_k", "--out", out, *texts)
    assert done.exit_code == 0, done.output
    says = " ".join(done.stdout.split())
    # of this model only the second matrix of an MLP has rows of 256
    assert "4 matrices in q4_k" in says
    assert "24 matrices in q5_0" in says
    model, plain = load(out), checkpoints.load("gqa")
    body = sum(it.weight.numel() for n, it in linears(plain) if n.startswith("layers."))
    wide = sum(it.weight.numel() for n, it in linears(plain) if n.endswith("down_proj"))
    rest = 4 * (plain.n_params - body)
    assert weight_bytes(model) == rest + 22 * (body - wide) // 32 + 144 * wide // 256
    spoken = run("generate", "--checkpoint", out, "--tokens", 5, "def ", "--json")
    assert spoken.exit_code == 0, spoken.output
    assert json.loads(spoken.stdout)["n_tokens"] == 5
    done = run(
        "quantize", "gqa", "--format", "nf4-double", "--out", out, *texts, "--json", "--force"
    )
    assert json.loads(done.stdout)["matrices"] == {"nf4-double": 28}


def test_help_names_the_named_formats() -> None:
    option = inspect.signature(quantize).parameters["form"].annotation
    assert all(f" {name}," in option or f" {name}." in option for name in NAMED)


def test_bits_per_byte_are_those_of_evaluate(text: Path) -> None:
    model, data = checkpoints.load("gqa"), corpus.load("held_out")[:3000]
    found = text_bits_per_byte(model, text.read_bytes(), None, 256)
    assert found == pytest.approx(bits_per_byte(model, data), abs=1e-5)


def test_a_hugging_face_directory_is_quantized_with_its_tokenizer(
    text: Path, tmp_path: Path
) -> None:
    folder, out = save(build("llama"), tmp_path / "llama", byte_level()), tmp_path / "made"
    done = run(
        "quantize", folder, "--out", out, "--method", "gptq", "--bits", 8, "--group", "channel",
        "--text", text, "--held-out", text, "--windows", 2,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "times less" in done.stdout
    for words in (["the cat sat"], ["--token-ids", "5 6 7"]):
        args = ["--tokens", 8, "--temperature", 0, "--json", *words]
        made = run("generate", "--checkpoint", out, *args)
        plain = run("generate", "--checkpoint", folder, *args)
        assert made.exit_code == 0, made.output
        # 8 bits of a random model: its logits are close; its likeliest tokens mostly the same
        assert json.loads(made.stdout)["n_tokens"] == json.loads(plain.stdout)["n_tokens"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nobody"], "neither a directory nor one of"),
        (["gqa", "--bits", "9"], "2 to 8 bits"),
        (["gqa", "--group", "row"], "--group is a number of inputs"),
        (["gqa", "--group", "0"], "--group is a number of inputs"),
        (["gqa", "--method", "magic"], "a method is one of"),
        (["gqa", "--text", "nowhere"], "cannot be read"),
        (["gqa", "--windows", "0"], "at least one window"),
        (["gqa", "--clip"], "--clip is a part of awq; the method is gptq"),
        (["gqa", "--format", "q3_k"], "a named format is one of"),
        (["gqa", "--format", "q4_k", "--bits", "4"], "leave --bits, --group and --affine out"),
        (["gqa", "--format", "q4_k", "--method", "awq"], "is rounded to nearest"),
    ],
)
def test_what_cannot_be_quantized_is_one_sentence(
    words: list[str], says: str, text: Path, tmp_path: Path
) -> None:
    given = ["--out", tmp_path / "made", "--held-out", text]
    given += [] if "--text" in words else ["--text", text]
    done = run("quantize", *words, *given)
    assert done.exit_code == 2
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.output
    assert not (tmp_path / "made" / "quantized.json").exists()


def test_a_directory_with_other_files_is_left_alone(text: Path, tmp_path: Path) -> None:
    done = run("quantize", "gqa", "--out", tmp_path, "--text", text, "--held-out", text)
    assert done.exit_code == 2
    assert "holds other files" in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == [text]


def test_a_window_of_text_is_needed_to_judge_by() -> None:
    with pytest.raises(ValueError, match="has 5 tokens, and a window takes 257"):
        text_bits_per_byte(checkpoints.load("gqa", torch.float32), b"short", None, 256)


def test_experts_are_left_as_they_are_and_the_sentence_says_so(text: Path, tmp_path: Path) -> None:
    texts = "--text", text, "--held-out", text, "--windows", 1
    for name in ("gqa", "moe"):
        model, out = checkpoints.load(name), tmp_path / name
        few = sum(
            it.weight.numel()
            for layer, it in model.named_modules()
            if layer.startswith("layers.") and isinstance(it, torch.nn.Linear)
        )
        done = run("quantize", name, "--out", out, "--method", "nearest", *texts)
        assert done.exit_code == 0, done.output
        says = f"{few / model.n_params:.0%} of its weights in few bits"
        assert says in " ".join(done.stdout.split())
        assert (few / model.n_params > 0.9) == (name == "gqa")


def test_what_was_pruned_is_quantized(text: Path, tmp_path: Path) -> None:
    texts = "--held-out", text, "--windows", 1
    small, out = tmp_path / "small", tmp_path / "made"
    done = run("prune", "gqa", "--keep", "layers=2", "--out", small, "--calibrate", text, *texts)
    assert done.exit_code == 0, done.output
    done = run("quantize", small, "--out", out, "--text", text, *texts, "--bits", 8)
    assert done.exit_code == 0, done.output
    assert load(out).config.L == 2
    tokens = torch.arange(40, 90)[None]
    near = load(out)(tokens).float() - read_pruned(small)(tokens).float()
    assert near.abs().max() < 0.5  # of logits; rounded to 8 bits


def test_what_was_quantized_before_is_written_over_only_by_force(
    text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "made"
    words = ["quantize", "gqa", "--out", out, "--method", "nearest", "--held-out", text]
    assert run(*words, "--bits", 4).exit_code == 0
    before = (out / "quantized.json").read_text()
    again = run(*words, "--bits", 8)
    assert again.exit_code == 2
    assert f"--out {out} holds a model that this command made before" in again.stderr
    assert (out / "quantized.json").read_text() == before
    forced = run(*words, "--bits", 8, "--force")
    assert forced.exit_code == 0, forced.output
    assert json.loads((out / "quantized.json").read_text())["format"]["bits"] == 8
