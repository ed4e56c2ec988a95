"""What `--help` prints on a terminal of 80 columns: every page of it."""

import itertools
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from twophase.cli import main as cli
from twophase.cli.help_text import WIDTH, folded

SUB_COMMANDS = {"gradescope": ("build", "try"), "nbgrader": ("record", "feedback")}
PAGES = [
    (),
    *((e.name,) for e in cli.ENTRIES),
    *((name, sub) for name, subs in SUB_COMMANDS.items() for sub in subs),
]


def _command(words: tuple[str, ...]) -> Any:
    command = cli.command(list(words))
    for word in words:
        command = command.commands[word]
    return command


def _options(words: tuple[str, ...]) -> set[str]:
    command = _command(words)
    return {o for p in command.params for o in (*p.opts, *p.secondary_opts)}


@pytest.fixture
def shown(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", None)  # read once, from TERMINAL_WIDTH
    with pytest.raises(SystemExit) as stopped:
        cli.main([*request.param, "--help"])
    assert not stopped.value.code
    return capsys.readouterr().out


every_page = pytest.mark.parametrize(
    "shown", PAGES, indirect=True, ids=lambda words: " ".join(words) or "twophase"
)


@every_page
def test_no_line_is_wider_than_the_terminal(shown: str) -> None:
    assert max(map(len, shown.splitlines())) <= 80


@every_page
def test_a_switch_names_no_type_and_no_type_is_pythons(shown: str) -> None:
    assert "<bool>" not in shown
    assert "list[" not in shown
    assert " range>" not in shown


@every_page
def test_paragraphs_fill_their_lines(shown: str) -> None:
    about = [line.strip() for line in shown.partition("╭")[0].splitlines()]
    for line, below in itertools.pairwise(about):
        if line and below:
            assert len(line) + 1 + len(below.split()[0]) > WIDTH, line


def _examples(shown: str) -> Iterator[str]:
    """The command lines of a help page, as a shell reads them."""
    text = re.split(r"^ Examples?:\n", shown, flags=re.MULTILINE)[-1]
    yield from text.replace("\\\n", "").strip().splitlines()


@every_page
def test_an_example_can_be_copied_into_a_shell(shown: str, request: pytest.FixtureRequest) -> None:
    words = request.node.callspec.params["shown"]
    if not words:
        assert "Example: twophase lab." in shown
        return
    assert not re.search(r"\\[ \t]+$", shown, re.MULTILINE)  # a continuation that is none
    lines = list(_examples(shown))
    assert lines
    for line in lines:
        command = shlex.split(line)
        at = len(command) - command[::-1].index("twophase")  # the last one of `a && b`
        used = command[at:]
        assert tuple(used[: len(words)]) == words
        target = words if len(words) > 1 or words[0] not in SUB_COMMANDS else tuple(used[:2])
        assert {word for word in used if word.startswith("--")} <= _options(target)


def test_a_long_example_is_folded_between_options_and_stays_one_command() -> None:
    line = (
        "twophase plan --model llama-2-13b --hardware h100 --batch 32 --prompt 924"
        ' --output 100 --price-per-hour 2.5 "of two words"'
    )
    lines = folded(line).split("\n")
    assert len(lines) == 2
    assert all(len(part) + 2 <= WIDTH for part in lines)
    assert lines[1].split()[0] == "--output"
    assert shlex.split(folded(line).replace("\\\n", "")) == shlex.split(line)


def test_every_command_of_the_list_is_a_page_of_help() -> None:
    for entry in cli.ENTRIES:
        loaded = cli._load(entry)
        subs = SUB_COMMANDS.get(entry.name, ())
        assert isinstance(loaded, typer.Typer) == bool(subs)
        if isinstance(loaded, typer.Typer):
            assert set(_command((entry.name,)).commands) == set(subs)
