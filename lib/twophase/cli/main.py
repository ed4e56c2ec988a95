"""The `twophase` command: finds the one module that a command needs, and turns whatever goes wrong
into one sentence."""

from __future__ import annotations

import errno
import importlib
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from twophase.cli.help_text import tidy
from twophase.cli.interrupt import loading

BAD_INPUT, BUG = 2, 1


LEARN, TEACH, SIZE, MEASURE = "Learn", "Teach", "Size a deployment", "Run and measure"


@dataclass(frozen=True)
class Entry:
    """A command: whom it serves, the module of twophase.cli that holds it, its function there (or
    its typer.Typer, if it has sub-commands), a line about it, an example."""

    group: str
    name: str
    module: str
    function: str
    summary: str
    example: str


ENTRIES = (
    Entry(
        LEARN, "lab", "learn", "lab", "Open the exercises in JupyterLab, in my/.", "twophase lab"
    ),
    Entry(
        LEARN,
        "update",
        "learn",
        "update",
        "Bring a new release into my/; every answer stays.",
        "twophase update",
    ),
    Entry(
        LEARN,
        "next",
        "learn",
        "next_",
        "Where you stopped, the next sitting, two recall questions.",
        "twophase next",
    ),
    Entry(
        LEARN,
        "progress",
        "learn",
        "progress",
        "What is done, tried and open.",
        "twophase progress kv_cache",
    ),
    Entry(
        LEARN,
        "self-check",
        "self_check",
        "self_check",
        "Before handing in: a saved notebook in the grader's jail, with the public cases.",
        "twophase self-check my/03_kv_cache.ipynb",
    ),
    Entry(
        TEACH,
        "release",
        "release",
        "release",
        "What students get, with nothing hidden in it.",
        "twophase release --out release/",
    ),
    Entry(
        TEACH,
        "grade",
        "grade",
        "grade",
        "Score a folder of notebooks.",
        "twophase grade submissions/ --out grades/",
    ),
    Entry(
        TEACH,
        "score",
        "score",
        "score",
        "Grades of a class from stored results and course.yml.",
        "twophase score grades/ --course course.yml",
    ),
    Entry(
        TEACH,
        "check",
        "grade",
        "check",
        "Score one notebook, as the official grader does.",
        "twophase check my/03_kv_cache.ipynb",
    ),
    Entry(
        TEACH,
        "similar",
        "similar",
        "similar",
        "Groups of near-identical answers, as evidence.",
        "twophase similar submissions/ --out grades/",
    ),
    Entry(
        TEACH,
        "merge",
        "shards",
        "merge",
        "Put the results of shards together.",
        "twophase merge grades-*/ --out grades/",
    ),
    Entry(
        TEACH,
        "gradescope",
        "gradescope",
        "app",
        "An autograder for Gradescope.",
        "twophase gradescope build --out autograder.zip",
    ),
    Entry(
        TEACH,
        "nbgrader",
        "nbgrader",
        "app",
        "Scores and feedback back into an nbgrader course.",
        "twophase nbgrader record grades/ --course-dir .",
    ),
    Entry(
        SIZE,
        "plan",
        "plan",
        "plan",
        "Size a deployment: memory, critical batch, latency, throughput.",
        "twophase plan --model llama-2-13b --hardware h100 --batch 32 --context 1024 --output 100",
    ),
    Entry(
        SIZE,
        "size",
        "size",
        "size",
        "Which chips, how many and which batch keep a promise, and at what price.",
        "twophase size --model llama-3.1-70b --weights fp8 --rate 5 --ttft 2 --tpot 0.05",
    ),
    Entry(MEASURE, "measure", "measure", "measure", "Calibrate this machine.", "twophase measure"),
    Entry(
        MEASURE,
        "generate",
        "generate",
        "generate",
        "Stream a completion: a model of the course, or a Hugging Face directory.",
        'twophase generate "def read_lines(path):"',
    ),
    Entry(
        MEASURE,
        "quantize",
        "quantize",
        "quantize",
        "A checkpoint in fewer bits: round to nearest, GPTQ or AWQ.",
        "twophase quantize gqa --method awq --bits 4 --group 64 --out gqa-awq",
    ),
    Entry(
        MEASURE,
        "prune",
        "prune",
        "prune",
        "A smaller checkpoint: without the layers, heads and channels that matter least.",
        "twophase prune gqa --keep layers=3,channels=50% --out gqa-pruned",
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"twophase {version('twophase')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the whole error, if there is one.")
    ] = False,
) -> None:
    """Two Phases. Transformer inference, derived, run and measured."""


def build(arguments: list[str]) -> typer.Typer:
    """The application, with the command that `arguments` name loaded and of all others only the
    name and summary.

    So `twophase --help` imports nothing of the course, and a command that cannot be loaded disturbs
    no other.
    """
    wanted = next((a for a in arguments if not a.startswith("-")), None)
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        rich_markup_mode="rich",
    )
    app.callback()(_options)
    for entry in ENTRIES:
        loaded = _load(entry) if entry.name == wanted else _placeholder(entry)
        about: dict[str, Any] = {"short_help": entry.summary, "rich_help_panel": entry.group}
        if isinstance(loaded, typer.Typer):
            app.add_typer(loaded, name=entry.name, **about)
        else:
            app.command(entry.name, **about)(loaded)
    return app


def command(arguments: list[str]) -> Any:
    """What `build` makes, with a help that can be read and copied from."""
    made: Any = typer.main.get_command(build(arguments))
    tidy(made, below={entry.name: entry.example for entry in ENTRIES})
    made.epilog = f"Example: {ENTRIES[0].example}. Each command has a --help of its own."
    return made


def _load(entry: Entry) -> Callable[..., Any] | typer.Typer:
    with loading():
        module = importlib.import_module(f"twophase.cli.{entry.module}")
    return getattr(module, entry.function)  # type: ignore[no-any-return]


def _placeholder(entry: Entry) -> Callable[..., Any]:
    def not_loaded() -> None:
        raise AssertionError(f"{entry.name} was called and not loaded")

    return not_loaded


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 went wrong, 2 bad input, 130 interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    for stream in (
        sys.stdout,
        sys.stderr,
    ):  # a terminal without our letters gets question marks, and no error
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    args = [a for a in given if a != "--debug"]
    try:
        command(args)(args=args, prog_name="twophase")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        sentence, code = explain(error)
        print(f"twophase: {sentence}", file=sys.stderr)
        sys.exit(code)


def explain(error: Exception) -> tuple[str, int]:
    """One sentence for an error, and the exit code: bad input (2), or something else that went
    wrong (1)."""
    if isinstance(error, ValueError):
        return str(error) or type(error).__name__, BAD_INPUT
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}", BAD_INPUT
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the output could not be written: no space is left", BUG
    absent = isinstance(error, ModuleNotFoundError) and error.name
    if absent and not absent.startswith("twophase"):
        return (
            f"this command needs {absent}, which is not installed here:"
            " pip install 'twophase[grading]'",
            BAD_INPUT,
        )
    text = str(error).partition("\n")[0]
    return (
        (
            f"this should not have happened ({type(error).__name__}: {text}); please report it,"
            " with the command you gave. With --debug you see where."
        ),
        BUG,
    )


if __name__ == "__main__":
    main()
