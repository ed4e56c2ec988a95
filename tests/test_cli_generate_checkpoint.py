"""`twophase generate --checkpoint`: the tokens of transformers, through the real command line;
refusals in a sentence."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hugging_face_folders import (
    build,
    build_with_eyes,
    byte_level,
    change_json,
    save,
    sentence_piece,
)
from rich.console import Console
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Rules
from tokenizers.models import WordLevel
from typer.testing import CliRunner

from twophase.cli import speakers
from twophase.cli.main import build as build_app
from twophase.cli.progress_bars import LoadingBar
from twophase.cli.speakers import until
from twophase.models.hugging_face import Tokenizer

PROMPT = "the cat sat on"
STEPS = 24
MODELS = {"llama": byte_level, "gemma3": sentence_piece, "deepseek_v3": byte_level}


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[int]]]:
    """Directories with tokenizers, and what transformers' own `generate` appends to the prompt,
    greedily."""
    made = {}
    for family, make in MODELS.items():
        rules = make()
        model = build_with_eyes() if family == "gemma3" else build(family)
        folder = save(model, tmp_path_factory.mktemp(family), rules)
        prompt = torch.tensor([rules.encode(PROMPT).ids])
        given = {
            "attention_mask": torch.ones_like(prompt),
            "do_sample": False,
            "eos_token_id": None,
        }
        new = model.generate(prompt, max_new_tokens=STEPS, **given)[0, prompt.shape[1] :]
        made[family] = (folder, new.tolist())
    return made


def run(*arguments: str) -> Any:
    """The command line in this process, as `twophase` has it."""
    return CliRunner().invoke(build_app(["generate"]), ["generate", *arguments])


def completed(folder: Path, *more: str) -> dict[str, Any]:
    arguments = (
        "--checkpoint",
        str(folder),
        "--tokens",
        str(STEPS),
        "--temperature",
        "0",
        "--json",
    )
    result = run(PROMPT, *arguments, *more)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("family", MODELS)
def test_greedy_tokens_are_those_of_transformers_and_their_text_is_what_streams(family, folders):
    folder, theirs = folders[family]
    rules = MODELS[family]()
    prompt = rules.encode(PROMPT).ids
    assert len(set(theirs)) > 4  # a lively continuation
    found = completed(folder)
    assert found["text"] == "".join(Tokenizer(folder).stream(prompt, theirs))
    assert (found["model"], found["n_prompt_tokens"], found["n_tokens"]) == (
        str(folder),
        len(prompt),
        STEPS,
    )
    assert found["finish_reason"] == "length"
    assert completed(folder, "--no-cache")["text"] == found["text"]
    numbers = run(
        " ".join(map(str, prompt)),
        *f"--checkpoint {folder} --token-ids --tokens 24 --temperature 0".split(),
    )
    assert [int(word) for word in numbers.stdout.partition("\n")[0].split()] == [*prompt, *theirs]


def test_the_text_streams_after_its_prompt_and_the_times_come_last(folders):
    folder, _ = folders["llama"]
    result = run(PROMPT, "--checkpoint", str(folder), "--tokens", "5", "--temperature", "0")
    assert result.stdout_bytes.decode().startswith(
        PROMPT + completed(folder, "--tokens", "5")["text"]
    )
    assert re.search(
        r"\n\n5 tokens after a prompt of \d+ \(length\); TTFT [\d.]+ ms, TPOT [\d.]+ ms, [\d,]+"
        r" tokens/s, plain path\n$",
        result.stdout,
    )
    assert result.stderr == ""


def test_an_end_token_of_the_generation_config_ends_the_text_and_is_not_shown(folders, tmp_path):
    folder, theirs = folders["llama"]
    at = next(i for i, token in enumerate(theirs) if i > 4 and token not in theirs[:i])
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    change_json(tmp_path / "generation_config.json", eos_token_id=[399, theirs[at]])
    found = completed(tmp_path)
    assert (found["finish_reason"], found["n_tokens"]) == ("stop", at + 1)
    assert completed(folder)["text"].startswith(found["text"])
    assert found["text"] == "".join(
        Tokenizer(folder).stream(byte_level().encode(PROMPT).ids, theirs[:at])
    )


def test_generation_ends_before_the_stop_text(folders):
    folder, _ = folders["llama"]
    whole = completed(folder)["text"]
    stop = whole[9:11]
    found = completed(folder, "--stop", stop)
    assert found["text"] == whole[: whole.index(stop)]
    assert found["finish_reason"] == "stop"
    assert found["n_tokens"] < STEPS


def test_what_may_become_a_stop_text_waits_until_it_is_decided():
    assert list(until(["ab", "c", "de"], ["cd"])) == ["ab"]
    assert list(until(["ab", "c", "xe"], ["cd"])) == ["ab", "cxe"]
    assert list(until(["ab", "c"], ["cd"])) == ["ab", "c"]
    assert "".join(until(["one END two END"], ["END", "two"])) == "one "
    assert list(until(["a", "b"], [])) == ["a", "b"]


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "auto"])
def test_every_dtype_runs(dtype, folders):
    result = run(
        PROMPT, "--checkpoint", str(folders["llama"][0]), "--tokens", "3", "--dtype", dtype
    )
    assert result.exit_code == 0
    assert "3 tokens after" in result.stdout


def test_notes_about_the_checkpoint_go_beside_the_text(folders, monkeypatch):
    folder, _ = folders["gemma3"]
    result = run(PROMPT, "--checkpoint", str(folder), "--tokens", "2")
    assert result.stderr.startswith("note: tensors left aside: 34, of the part that sees images")
    assert "note" not in result.stdout
    folder, _ = folders["llama"]
    monkeypatch.setattr(speakers, "free_bytes", lambda device: 1000)
    result = run(PROMPT, "--checkpoint", str(folder), "--tokens", "300")
    first, second = result.stderr.splitlines()
    assert re.match(
        r"note: prompt and new tokens are 3\d\d, but this model was made for 256 positions", first
    )
    assert re.match(
        r"note: the weights \(0\.0 GB\) and the cache for 3\d\d tokens .* are more than the"
        r" 0\.0 GB",
        second,
    )
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["x", "--model", "gqa"],
            "--model names a model of the course, --checkpoint a directory: give one",
        ),
        (["x", "--dtype", "int8"], "--dtype is one of auto, fp32, bf16, fp16; got int8"),
        (["x", "--device", "tpu"], "--device is cpu or cuda; got tpu"),
        (["1 two", "--token-ids"], "with --token-ids the prompt is whole numbers"),
        (["1 4000", "--token-ids"], "token 4000 is outside the vocabulary of 400"),
        (
            ["1", "--token-ids", "--stop", "x"],
            "--token-ids goes with --checkpoint, and without --stop",
        ),
        (["x", "--tokens", "0"], "at least 1 new token"),
        (["", "--tokens", "1"], "the prompt is empty"),
        (["a\udcff"], "the prompt is no text"),
    ],
)
def test_nonsense_is_refused_in_one_sentence_with_exit_code_2(arguments, says, folders):
    result = run(*arguments, "--checkpoint", str(folders["llama"][0]))
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_a_sentence(folders):
    result = run("x", "--checkpoint", str(folders["llama"][0]), "--device", "cuda")
    assert result.exit_code == 2
    assert "torch finds no CUDA device here" in result.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("family", MODELS)
def test_a_gpu_continues_as_the_cpu_does(family, folders):
    folder, _ = folders[family]
    assert completed(folder, "--device", "cuda")["text"] == completed(folder)["text"]


def test_a_directory_without_what_is_needed_is_a_sentence_each(folders, tmp_path):
    for path in folders["llama"][0].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "tokenizer.json").unlink()
    result = run(PROMPT, "--checkpoint", str(tmp_path))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "there is no tokenizer.json in" in result.stderr
    result = run(PROMPT, "--checkpoint", str(tmp_path / "nowhere"))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "there is no directory" in result.stderr


def test_the_tokenizer_of_another_model_is_refused_and_a_doubtful_one_is_noted(folders, tmp_path):
    for path in folders["llama"][0].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    words = {f"w{i}": i for i in range(500)} | {"[UNK]": 500}
    larger = Rules(WordLevel(words, unk_token="[UNK]"))
    larger.save(str(tmp_path / "tokenizer.json"))
    result = run(PROMPT, "--checkpoint", str(tmp_path))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "knows 501 tokens, but the model 400: it is the tokenizer of another" in result.stderr
    smaller = Rules(WordLevel({"the": 0, "cat": 1, "[UNK]": 2}, unk_token="[UNK]"))
    smaller.save(str(tmp_path / "tokenizer.json"))
    result = run("the", "--checkpoint", str(tmp_path), "--tokens", "2")
    assert result.exit_code == 0
    assert "note: tokenizer.json knows 3 tokens, the model 400: it may be" in result.stderr


@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_logits_that_outgrow_their_dtype_and_weights_that_are_nan_are_a_sentence(
    temperature, folders, tmp_path
):
    for path in folders["llama"][0].glob("*.json"):
        if "index" not in path.name:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    tensors = {}
    for path in folders["llama"][0].glob("*.safetensors"):
        tensors |= load_file(path)
    tensors["lm_head.weight"] *= 60_000 / tensors["lm_head.weight"].abs().max()
    save_file(tensors, tmp_path / "model.safetensors")
    ask = (PROMPT, "--checkpoint", str(tmp_path), "--temperature", temperature, "--tokens", "2")
    assert run(*ask, "--dtype", "bf16").exit_code == 0
    result = run(*ask, "--dtype", "fp16")
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (2, 1, "")
    assert "the logits hold NaN or infinity" in result.stderr
    tensors["model.norm.weight"][0] = float("nan")
    save_file(tensors, tmp_path / "model.safetensors")
    result = run(*ask)
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (2, 1, "")
    assert "model.norm.weight holds NaN or infinity" in result.stderr


def test_a_bar_appears_once_loading_has_taken_two_seconds_and_not_before():
    clock = iter([0.0, 1.0, 1.9, 2.1, 2.2])
    out = io.StringIO()
    with LoadingBar(lambda: next(clock), Console(file=out, force_terminal=True, width=100)) as bar:
        for done in (10, 20):
            bar(done, 100)
        assert out.getvalue() == ""
        for done in (30, 100):
            bar(done, 100)
    assert "loading weights" in out.getvalue()


def test_help_shows_an_example_with_a_checkpoint():
    result = run("--help")
    assert "twophase generate --checkpoint" in result.stdout
