"""`twophase prune`: what it says is true of the model it wrote, `generate` and transformers run it,
and what cannot be done is one sentence."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hugging_face_folders import build, byte_level, save
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from twophase.cli.main import build as build_app
from twophase.cli.prune import _tpot_s
from twophase.models import checkpoints, corpus, hugging_face
from twophase.models.config import Config
from twophase.models.pruning import MEASURES, Kept, cut, prune, teaching
from twophase.models.pruning.directory import load
from twophase.models.pruning.directory import save as save_pruned
from twophase.models.quantize.texts import text_bits_per_byte
from twophase.models.transformer import Transformer

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


@pytest.mark.parametrize(
    "kept",
    [
        {"layers": [0, 3]},
        {"heads": {layer: [2, 3] for layer in range(4)}},
        {"heads": {layer: [0, 2] for layer in range(4)}},
        {"channels": dict.fromkeys(range(4), range(7, 107))},
        {"width": [*range(0, 128, 2)]},
    ],
    ids=["layers", "groups of heads", "a head of each group", "channels", "width"],
)
def test_each_kind_of_cut_alone_says_the_same_in_transformers(
    kept: dict[str, Any], tmp_path: Path
) -> None:
    model = cut(checkpoints.load("gqa"), Kept(**kept))
    assert save_pruned(model, tmp_path, {})
    assert torch.equal(load(tmp_path)(TOKENS), model(TOKENS))
    assert torch.allclose(transformers_logits(tmp_path, TOKENS), model(TOKENS), atol=1e-4)


def test_a_width_that_heads_do_not_divide_is_only_ours_to_read(tmp_path: Path) -> None:
    """transformers refuses such a Llama, though its config names head_dim."""
    model = cut(checkpoints.load("gqa"), Kept(width=range(99)))
    assert not save_pruned(model, tmp_path, {})
    assert not (tmp_path / "config.json").exists()
    assert torch.equal(load(tmp_path)(TOKENS), model(TOKENS))


def test_what_is_left_is_healed_and_judged_after_that(text: Path, tmp_path: Path) -> None:
    lesson = tmp_path / "lesson.py"
    lesson.write_bytes(corpus.load("train")[:20_000].tobytes())
    for source, folder in (("gqa", tmp_path / "bytes"), (None, tmp_path / "tokens")):
        words = ["--calibrate", text, "--held-out", text, "--windows", 2, "--out", folder]
        given = source or save(build("llama"), tmp_path / "llama", byte_level())
        asked = ["prune", given, "--keep", "channels=30", *words]
        plain = json.loads(run(*asked, "--json").stdout)
        done = run(*asked, "--json", "--heal", lesson, "--tokens", 9_000, "--force")
        assert done.exit_code == 0, done.output
        facts = json.loads(done.stdout)
        assert plain["healed"] is None
        healed = facts["healed"]
        assert 4_000 < healed["tokens"] <= 9_000
        before, after = healed["bits_per_byte"]
        assert before == pytest.approx(plain["bits_per_byte"][1])
        assert after < before
        assert healed["kept"]
        model = load(folder, torch.float32 if source else None)
        T = min(model.config.context, 512)
        encode = hugging_face.Tokenizer(folder, model.config.V).encode if source is None else None
        found = text_bits_per_byte(model, text.read_bytes(), encode, T)
        assert found == pytest.approx(facts["bits_per_byte"][1], abs=1e-6)
        assert healed["bits_per_byte"][1] == facts["bits_per_byte"][1]
        assert found == pytest.approx(after, abs=1e-6)
    said = run(*asked, "--heal", lesson, "--tokens", 9_000, "--force").stdout
    assert "healed on" in said
    assert "bits per byte before that" in said


def test_healing_that_makes_it_worse_is_left_out(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        teaching, "teach", lambda student, *args, **more: student.norm.weight.data.zero_()
    )
    words = ["--calibrate", text, "--held-out", text, "--windows", 2, "--out", tmp_path / "made"]
    asked = ["prune", "gqa", "--keep", "channels=90%", *words, "--heal", "corpus"]
    done = run(*asked, "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert not facts["healed"]["kept"]
    assert facts["healed"]["bits_per_byte"][1] == pytest.approx(8)
    assert facts["bits_per_byte"][1] == facts["healed"]["bits_per_byte"][0]
    assert "was left as it was cut" in run(*asked, "--force").stdout


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
        (["gqa", "--keep", "layers=2", "--heal", "none.txt"], "none.txt cannot be read"),
        (
            ["gqa", "--keep", "layers=2", "--heal", "corpus", "--tokens", "9"],
            "--tokens: a step of healing reads 2,048; got 9",
        ),
    ],
)
def test_what_cannot_be_pruned_is_one_sentence(words: list[str], sentence: str, tmp_path) -> None:
    done = run("prune", *words, "--out", tmp_path / "made")
    assert done.exit_code == 2
    assert sentence in done.stderr.replace("\n", " ")
    assert not (tmp_path / "made" / "pruned.json").exists()


def test_layers_are_chosen_by_leaving_each_out_unless_said_otherwise() -> None:
    torch.manual_seed(0)
    model = Transformer(Config(L=2, D=8, N=2, K=1, H=4, F=8, V=16)).eval()
    tokens, keep = torch.randint(16, (2, 9)), {"layers": 1, "channels": 4, "width": 6}
    found = [prune(model, keep, measure, tokens)[1] for measure in (None, "activation")]
    measures = [[stage.measure for stage in stages] for stages in found]
    assert measures == [["leave_one_out", "gradient", "gradient"], ["activation"] * 3]


def test_the_help_names_every_measure_and_every_kind_of_part() -> None:
    said = run("prune", "--help").stdout
    assert all(name in said for name in (*MEASURES, "layers", "kv_heads", "channels", "width"))


def test_other_files_are_not_written_over(text: Path, tmp_path: Path) -> None:
    done = run("prune", "gqa", "--keep", "layers=2", "--out", tmp_path)
    assert done.exit_code == 2
    assert "holds other files" in done.stderr


def test_what_was_pruned_before_is_written_over_only_by_force(text: Path, tmp_path: Path) -> None:
    """A healed model may have taken hours."""
    out = tmp_path / "made"
    words = ["--calibrate", text, "--held-out", text, "--windows", 1, "--out", out]
    assert run("prune", "gqa", "--keep", "layers=3", *words).exit_code == 0
    before = (out / "model.safetensors").read_bytes()
    again = run("prune", "gqa", "--keep", "layers=2", *words)
    assert again.exit_code == 2
    assert f"--out {out} holds a model that this command made before" in again.stderr
    assert "--force" in again.stderr
    assert (out / "model.safetensors").read_bytes() == before
    forced = run("prune", "gqa", "--keep", "layers=2", *words, "--force")
    assert forced.exit_code == 0, forced.output
    assert load(out).config.L == 2


def test_where_nothing_can_be_written_is_said_before_the_work(text: Path) -> None:
    for out in (text / "made", text / "more" / "made"):
        done = run("prune", "no such model", "--keep", "layers=2", "--out", out)
        assert done.exit_code == 2
        assert f"--out {out}: nothing can be written to {text}" in done.stderr


def test_force_is_not_for_files_of_others(text: Path, tmp_path: Path) -> None:
    done = run("prune", "gqa", "--keep", "layers=2", "--out", tmp_path, "--force")
    assert done.exit_code == 2
    assert "holds other files" in done.stderr


def test_both_models_are_timed_alike_by_what_a_step_of_each_takes() -> None:
    """By a clock that goes on with the parameters of whoever runs; a first call, a late one and a
    garbage collection take as long as ten thousand steps, and are in neither number."""
    now, calls = 0.0, 0
    models = [checkpoints.load("gqa"), cut(checkpoints.load("gqa"), Kept(layers=[0, 3]))]

    def passes(model: torch.nn.Module, *_: object) -> None:
        nonlocal now, calls
        calls += 1
        if not hasattr(model, "warm") or calls in (20, 21):
            now += 1e10
        model.warm = True
        now += model.n_params
        [[] for _ in range(5000)]  # what Python would collect by now

    def collected(phase: str, _: object) -> None:
        nonlocal now
        now += 1e10 * (phase == "start")

    for model in models:
        model.register_forward_pre_hook(passes)
    gc.callbacks.append(collected)
    try:
        found = _tpot_s(models, [1, 2, 3], clock=lambda: now)
    finally:
        gc.callbacks.remove(collected)
    assert found == pytest.approx([model.n_params for model in models], rel=1e-3)
