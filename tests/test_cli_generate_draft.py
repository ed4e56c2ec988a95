"""`twophase generate --draft`: the same text, what drafts were worth, refusals in a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
from hugging_face_folders import build, byte_level, save, sentence_piece
from typer.testing import CliRunner

from twophase.cli.drafting import LOOKUP, QUANTIZED, check_tokenizers, tpot_without_drafts
from twophase.cli.main import build as build_app
from twophase.models.generate import Generation
from twophase.models.speculative_decoding import trained

GREEDY = ("--temperature", "0", "--tokens", "24", "--json", "def f(x):\n    return x\ndef g(x")


def run(*arguments: str) -> Any:
    """The command line in this process, as `twophase` has it."""
    return CliRunner().invoke(build_app(["generate"]), ["generate", *arguments])


def facts(*arguments: str) -> dict[str, Any]:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_drafts_change_no_word_and_say_what_they_were_worth():
    plain = facts(*GREEDY)
    assert plain["draft"] is None
    for draft in ("draft", "gqa", "lookup", "quantized"):
        found = facts("--draft", draft, "--drafted", "3", *GREEDY)
        assert found["text"] == plain["text"]
        worth = found["draft"]
        assert (worth["by"], worth["tokens_at_a_time"]) == (draft, 3)
        assert 1 <= worth["tokens_per_call"] <= 4
        assert worth["speedup"] == pytest.approx(worth["tpot_without_s"] / found["tpot_s"])
        if draft == "gqa":  # it drafts for itself: nothing is refused
            assert worth["acceptance"] == 1
            assert worth["calls"] == 6  # 1 + 5·4 + 3


def test_a_person_reads_it_in_a_sentence():
    said = run("--draft", "lookup", *[word for word in GREEDY if word != "--json"]).stdout
    assert "Up to 4 tokens looked up in the text at a time" in said
    assert "times as fast as without drafts" in said
    own = run("--draft", "quantized", *[word for word in GREEDY if word != "--json"]).stdout
    assert "Up to 4 tokens drafted by the model itself in 4 bits at a time" in own
    short = run("--draft", "lookup", "--tokens", "1", "x = ").stdout
    assert "No token was looked up in the text" in short


def test_the_help_names_every_kind_of_draft():
    said = run("--help").stdout
    assert all(name in said for name in (LOOKUP, QUANTIZED, *trained.NAMES))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--draft", "drat"], "drat"),
        (["--draft", "eagle"], "eagle was trained on target, not on gqa"),
        (["--draft", "draft", "--no-cache"], "leave out --no-cache"),
        (["--draft", "draft", "--drafted", "0"], "--drafted is 1 to 64 tokens at a time; got 0"),
        (["--draft", "draft", "--drafted", "65"], "got 65"),
    ],
)
def test_what_cannot_be_is_refused_by_a_sentence(given, sentence):
    result = run(*given, "x")
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_pairs_of_directories_draft_if_they_have_one_tokenizer(tmp_path: Path):
    rules = byte_level()
    target = save(build("llama"), tmp_path / "target", rules)
    small = save(build("qwen2"), tmp_path / "small", rules)
    other = save(build("llama"), tmp_path / "other", sentence_piece())
    asked = ("--checkpoint", str(target), "--temperature", "0", "--tokens", "9", "--json", "the")
    plain = facts(*asked)
    assert facts("--draft", str(small), *asked)["text"] == plain["text"]
    refused = run("--draft", str(other), *asked)
    assert refused.exit_code == 2
    assert "cannot draft for this model: its token" in refused.stderr


def test_what_was_quantized_drafts_for_what_it_was_made_of(tmp_path: Path):
    folder = save(build("llama"), tmp_path / "llama", byte_level())
    texts = tmp_path / "text.py"
    texts.write_bytes(b"def f(x):\n    return x\n" * 200)
    for source, name, target in ((folder, "few", ("--checkpoint", str(folder))), ("gqa", "g", ())):
        words = [source, "--out", tmp_path / name, "--method", "nearest", "--bits", 8]
        words += ["--text", texts, "--held-out", texts]
        app = build_app(["quantize"])
        done = CliRunner().invoke(app, ["quantize", *map(str, words)])
        assert done.exit_code == 0, done.output
        found = facts(*target, "--draft", str(tmp_path / name), *GREEDY)
        assert found["text"] == facts(*target, *GREEDY)["text"]
        assert found["draft"]["acceptance"] > 0.5  # 8 bits of the same
    crossed = run("--checkpoint", str(folder), "--draft", str(tmp_path / "g"), *GREEDY)
    assert crossed.exit_code == 2
    assert "its tokens are bytes, the model's are a tokenizer's" in crossed.stderr
    crossed = run("--draft", str(folder), *GREEDY)
    assert crossed.exit_code == 2
    assert "its tokens are a tokenizer's, the model's are bytes" in crossed.stderr


def test_tokens_that_one_of_them_lacks_are_no_difference():
    check_tokenizers({"a": 0, "b": 1}, {"a": 0, "b": 1, "<pad>": 2}, "small")
    with pytest.raises(ValueError, match="its token 1 is 'c', the model's is 'b'"):
        check_tokenizers({"a": 0, "b": 1}, {"a": 0, "c": 1}, "small")


def test_heads_draft_for_the_model_that_they_were_trained_on():
    asked = ("--model", "target", *GREEDY)
    plain = facts(*asked)
    for draft in ("heads", "eagle", "mtp"):
        found = facts("--draft", draft, "--drafted", "3", *asked)
        assert found["text"] == plain["text"]
        assert found["draft"]["by"] == draft
        assert found["draft"]["tokens_per_call"] > 1


def test_the_time_without_drafts_has_no_compilation_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of one token, which no pass with drafts may have taken, runs before any is timed."""
    asked: list[tuple[list[int], int]] = []

    def complete(network: Any, prompt: list[int], n: int, **options: Any) -> Generation:
        asked.append((prompt, n))
        return Generation(prompt, [0] * n, [float(len(asked)) * (i + 1) for i in range(n)])

    monkeypatch.setattr("twophase.models.generate.complete", complete)
    record = Generation([7, 8, 9], [1, 2, 3, 4])
    assert tpot_without_drafts(None, record, path="compiled") == 2  # type: ignore[arg-type]
    assert asked == [([7, 8], 2), ([7, 8, 9], 4)]
    tpot_without_drafts(None, Generation([7], [1]), path="compiled")  # type: ignore[arg-type]
    assert asked[2:] == [([7], 1), ([7], 1)]
