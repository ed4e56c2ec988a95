"""`twophase generate`: streams text, prints the three numbers, and refuses nonsense in one
sentence."""

import json
import re

import pytest
import typer
from typer.testing import CliRunner

from twophase.cli.generate import PATHS, generate
from twophase.cli.speakers import decode, hold_back
from twophase.models import generate as models_generate

app = typer.Typer()
app.command()(generate)


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_a_completion_is_streamed_after_its_prompt_with_ttft_tpot_and_tokens_per_second():
    result = run("def read_lines(path):", "--tokens", "12")
    assert result.exit_code == 0
    assert result.stdout.startswith("def read_lines(path):")
    assert re.search(
        r"12 tokens after a prompt of 22 .*TTFT [\d.]+ ms, TPOT [\d.]+ ms, [\d,]+ tokens/s,"
        r" plain path\n$",
        result.stdout,
    )


def test_the_same_seed_gives_the_same_text_with_and_without_the_cache():
    texts = []
    for extra in ([], [], ["--no-cache"], ["--seed", "1"]):
        result = run("def f(", "--tokens", "24", "--json", *extra)
        assert result.exit_code == 0
        texts.append(json.loads(result.stdout))
    assert texts[0]["text"] == texts[1]["text"] == texts[2]["text"] != texts[3]["text"]
    assert [t["cache"] for t in texts] == [True, True, False, True]
    assert texts[0]["n_tokens"] == 24
    assert texts[0]["ttft_s"] > 0


def test_greedy_ignores_the_seed_and_one_token_has_no_tpot():
    a, b = (
        run("import ", "--temperature", "0", "--tokens", "1", "--json", "--seed", s) for s in "12"
    )
    assert json.loads(a.stdout)["text"] == json.loads(b.stdout)["text"]
    assert json.loads(a.stdout)["tpot_s"] is None
    assert "TPOT n/a" in run("import ", "--tokens", "1").stdout


def test_generation_ends_before_the_stop_text():
    whole = json.loads(run("def f(", "--tokens", "40", "--temperature", "0", "--json").stdout)[
        "text"
    ]
    stop = whole[20:23]
    result = json.loads(
        run("def f(", "--tokens", "40", "--temperature", "0", "--json", "--stop", stop).stdout
    )
    assert result["text"] == whole[: whole.index(stop)]
    assert result["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([""], "the prompt is empty"),
        (["x", "--tokens", "0"], "at least 1 new token"),
        (["x", "--tokens", "1000000000"], "at most 100,000"),
        (["x", "--model", "gpt-5"], 'unknown model "gpt-5"; known: '),
        (["x", "--model", "diffusion", "--no-cache"], "fills in masked text"),
        (["x", "--temperature", "-1"], "the temperature"),
        (["x", "--top-k", "0"], "top_k"),
        (["x", "--top-p", "1.5"], "top_p"),
        (["x", "--stop", ""], "--stop needs some text"),
        (["x", "--seed", str(2**64)], "--seed needs a whole number"),
    ],
)
def test_nonsense_is_refused_in_one_sentence_with_exit_code_2(arguments, says):
    result = run(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_prompt_of_bytes_that_are_no_utf8_is_taken_as_it_is():
    result = run(
        "x = '\udcff", "--tokens", "3"
    )  # how Python hands on the byte 0xff of a command line
    assert result.exit_code == 0
    assert result.stdout.startswith("x = '\ufffd")
    assert "after a prompt of 7 " in result.stdout


def test_a_character_of_several_bytes_appears_whole_and_a_stray_byte_as_a_mark():
    assert list(decode("aé€".encode())) == ["a", "é", "€"]
    assert "".join(decode(b"a\xffb\xc3")) == "a\ufffdb\ufffd"


def test_what_may_become_the_stop_text_is_held_back_until_it_is_decided():
    assert bytes(hold_back(b"one\n\ntwo", [b"\n\n"])) == b"one"
    assert bytes(hold_back(b"one\ntwo\n", [b"\n\n"])) == b"one\ntwo\n"
    assert bytes(hold_back(b"abcab", [b"abcd", b"ab!"])) == b"abcab"
    assert bytes(hold_back(b"xaab", [b"ab"])) == b"xa"
    shown: list[int] = []
    stream = hold_back((shown.append(t) or t for t in b"a\nb"), [b"\n\n"])
    assert next(stream) == ord("a")
    assert bytes(shown) == b"a"


def test_the_compiled_path_says_so_and_writes_the_same_text():
    asked = ("def f(x):", "--tokens", "8", "--temperature", "0", "--json", "--path")
    said = {path: run(*asked, path) for path in ("plain", "compiled")}
    plain, compiled = (json.loads(result.stdout) for result in said.values())
    assert plain["text"] == compiled["text"]
    assert [plain["path"], compiled["path"]] == ["plain", "compiled"]
    says = (
        "compiled path, on one core, reading weights as the bf16 that they are; prompts of more"
        " than 16 tokens, or of several sequences, in plain torch.\n"
    )
    assert said["compiled"].stderr.startswith(says)  # it may compile


def test_a_path_that_cannot_run_is_a_sentence():
    assert PATHS == models_generate.PATHS
    for asked, says in (
        (["--path", "quick"], "--path is one of plain, compiled; got quick"),
        (["--path", "compiled", "--no-cache"], "need a cache: leave out --no-cache"),
        (["--path", "compiled", "--dtype", "fp16"], "read float32 and bfloat16"),
    ):
        result = run("def f(x):", *asked)
        assert result.exit_code == 2
        assert says in result.stderr
        assert result.stderr.count("twophase generate:") == 1
