"""The `twophase` command: help, bad input, and what happens when something breaks."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

from twophase.cli import main as cli
from twophase.cli.interrupt_while_loading import loading

NAMES = [e.name for e in cli.ENTRIES]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(arguments))
    return int(stopped.value.code or 0)


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERMINAL_WIDTH", "160")


@pytest.mark.parametrize("name", NAMES)
def test_the_help_of_each_command_shows_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(name, "--help") == 0
    out = capsys.readouterr().out
    assert f"twophase {name}" in out.partition(" Example")[2]


@pytest.mark.parametrize(
    "words", [("gradescope", "build"), ("gradescope", "try"), ("nbgrader", "record"),
              ("nbgrader", "feedback")], ids=" ".join,
)  # fmt: skip
def test_the_help_of_each_sub_command_shows_an_example_of_its_own(
    words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words, "--help") == 0
    assert f"twophase {' '.join(words)}" in capsys.readouterr().out.partition(" Example")[2]
    assert run(words[0], "--help") == 0
    assert words[1] in capsys.readouterr().out


def test_help_shows_commands_by_whom_they_serve(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    lines = capsys.readouterr().out.splitlines()
    place = {e.name: next(i for i, x in enumerate(lines) if f"│ {e.name} " in x)
             for e in cli.ENTRIES}  # fmt: skip
    heads = [i for i, x in enumerate(lines) if x.startswith("╭─ ")]
    for entry in cli.ENTRIES:
        above = max(i for i in heads if i < place[entry.name])
        assert lines[above].startswith(f"╭─ {entry.group} ─")


def test_help_lists_every_command_and_imports_nothing_of_the_course() -> None:
    code = (
        "import sys\nfrom twophase.cli.main import main\ntry: main(['--help'])\nexcept SystemExit:"
        " pass\nprint([m for m in sys.modules if m in ('torch', 'numpy', 'nbformat') or"
        " m.startswith('twophase.checks')])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert shown.stdout.splitlines()[-1] == "[]"
    assert all(name in shown.stdout for name in NAMES)
    assert shown.stderr == ""


def test_the_installed_command_runs() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "twophase.cli.main", "--version"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (shown.returncode, shown.stdout.split()[0], shown.stderr) == (0, "twophase", "")


def test_an_unknown_command_is_bad_input_and_gets_a_suggestion(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("progres") == 2
    assert "'progress'" in capsys.readouterr().err


BAD = (
    ("progress", "no_such_topic"),
    ("update", "--course", "/nonexistent"),
    ("lab", "--no-open", "--course", "/nonexistent"),
    ("next", "--no-such-option"),
    ("plan", "--model", "no-such-model"),
    ("plan", "--batch", "many"),
)


def test_a_number_with_a_letter_is_shown_again_with_what_to_write(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("plan", "--model", "llama-2-13b", "--context", "128k") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "'128k' is not a whole number; write all its digits, as in 128000." in said


def test_where_no_batch_is_critical_the_plan_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", "--model", "llama-2-13b", "--context", "1024") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "none at this context every batch reads for longer than it computes" in out


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_input_is_a_sentence_on_stderr_and_exit_code_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.strip()
    assert "Traceback" not in err
    assert "report" not in err


def breaks(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def broken() -> None:
        raise error

    monkeypatch.setattr(cli, "_load", lambda entry: broken)


ERRORS: tuple[tuple[BaseException, int, str], ...] = (
    (ValueError("the batch must be positive"), 2, "the batch must be positive"),
    (FileNotFoundError(2, "No such file or directory", "x.ipynb"), 2, "x.ipynb: No such file"),
    (RuntimeError("boom\nsecond line"), 1, "please report"),
    (ModuleNotFoundError("No module named 'torch'"), 1, "No module named 'torch'"),
    (OSError(errno.ENOSPC, "No space left on device"), 1, "no space is left"),
    (KeyboardInterrupt(), 130, ""),
)


@pytest.mark.parametrize(("error", "code", "says"), ERRORS, ids=lambda v: type(v).__name__)
def test_whatever_breaks_becomes_one_sentence_and_an_exit_code(
    error: BaseException,
    code: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    breaks(monkeypatch, error)
    assert run("measure") == code
    err = capsys.readouterr().err
    assert says in err
    assert "Traceback" not in err
    assert err.count("\n") <= 1


def test_debug_shows_the_whole_error(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, RuntimeError("boom"))
    with pytest.raises(RuntimeError, match="boom"):
        cli.main(["measure", "--debug"])


def test_an_interrupt_that_a_library_swallows_while_it_loads_still_ends_the_command() -> None:
    before = signal.getsignal(signal.SIGINT)
    for made_of_it in (KeyboardInterrupt, ImportError):
        with pytest.raises(KeyboardInterrupt), loading():  # noqa: PT012
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                if made_of_it is ImportError:
                    raise ImportError("half loaded") from None
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_within_an_import_waits_for_its_end_and_a_second_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt within torch's import aborts the process: `terminate called` from C++."""
    interrupt = "os.kill(os.getpid(), signal.SIGINT)\n"
    source = f"import os, signal\n{interrupt}once = True\n{interrupt}twice = True\n"
    for name, text in (("patient", source.rpartition("os.kill")[0]), ("impatient", source)):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("patient", "impatient"):
        with pytest.raises(KeyboardInterrupt), loading():
            importlib.import_module(name)
    assert sys.modules.pop("patient").once
    assert "impatient" not in sys.modules


@pytest.mark.parametrize("module", ["typer", "dataclasses"])
def test_an_interrupt_before_anything_is_loaded_is_no_traceback(
    tmp_path: Path, module: str
) -> None:
    (tmp_path / f"{module}.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", "from twophase.cli.main import main; main()", "--help"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_command_that_cannot_be_loaded_disturbs_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = cli.Entry(cli.TEACH, "grade", "no_such_module", "Gone.")
    monkeypatch.setattr(cli, "ENTRIES", (*(e for e in cli.ENTRIES if e.name != "grade"), gone))
    assert run("grade", "x") == 1
    assert run("next", "--help") == 0
    assert run("--help") == 0
    assert "grade" in capsys.readouterr().out


def test_every_entry_names_a_function_that_exists() -> None:
    loaded: dict[str, Any] = {e.name: cli._load(e) for e in cli.ENTRIES}
    assert all(callable(f) for f in loaded.values())


def test_a_command_whose_libraries_are_not_installed_says_which_and_how_to_get_them() -> None:
    absent = ModuleNotFoundError("No module named 'nbformat'", name="nbformat")
    sentence, code = cli.explain(absent)
    assert "needs nbformat" in sentence
    assert "pip install 'twophase[grading]'" in sentence
    assert code == cli.BAD_INPUT
    ours = ModuleNotFoundError("No module named 'twophase.x'", name="twophase.x")
    assert cli.explain(ours)[1] == cli.BUG
