"""The `twophase` command: finds the one module that a command needs, and turns whatever goes wrong
into one sentence."""

from __future__ import annotations

import sys

try:
    import errno
    import importlib
    import io
    from collections.abc import Callable
    from dataclasses import dataclass
    from typing import Annotated, Any

    import typer

    from twophase.cli.help_text import tidy
    from twophase.cli.interrupt_while_loading import loading
except KeyboardInterrupt:  # nobody is there yet to take it
    sys.exit(130)

BAD_INPUT, BUG, OUR_FAULT = 2, 1, 3


LEARN, TEACH, SIZE, MEASURE = "Learn", "Teach", "Size a deployment", "Run and measure"


@dataclass(frozen=True)
class Entry:
    """A command: whom it serves; where in twophase.cli its function is, or its typer.Typer if it
    has sub-commands (`module`, if that is called like the command, else `module:name`); a line
    about it."""

    group: str
    name: str
    where: str
    summary: str


ENTRIES = (
    Entry(LEARN, "lab", "learn", "Open the exercises in JupyterLab, in my/."),
    Entry(LEARN, "update", "learn", "Bring a new release into my/; every answer stays."),
    Entry(
        LEARN, "next", "learn:next_", "Where you stopped, the next sitting, two recall questions."
    ),
    Entry(LEARN, "progress", "learn", "What is done, tried and open."),
    Entry(
        LEARN,
        "self-check",
        "self_check",
        "Before handing in: a saved notebook in the grader's jail, with the public cases.",
    ),
    Entry(TEACH, "release", "release", "What students get, with nothing hidden in it."),
    Entry(TEACH, "grade", "grade", "Score a folder of notebooks."),
    Entry(TEACH, "score", "score", "Grades of a class from stored results and course.yml."),
    Entry(TEACH, "check", "grade", "Score one notebook, as the official grader does."),
    Entry(TEACH, "similar", "similar", "Groups of near-identical answers, as evidence."),
    Entry(TEACH, "merge", "merge", "Put the results of shards together."),
    Entry(TEACH, "gradescope", "gradescope:app", "An autograder for Gradescope."),
    Entry(TEACH, "nbgrader", "nbgrader:app", "Scores and feedback back into an nbgrader course."),
    Entry(SIZE, "plan", "plan", "Size a deployment: memory, critical batch, latency, throughput."),
    Entry(
        SIZE,
        "size",
        "size",
        "Which chips, how many and which batch keep a promise, and at what price.",
    ),
    Entry(MEASURE, "measure", "measure", "Calibrate this machine."),
    Entry(
        MEASURE,
        "generate",
        "generate",
        "Stream a completion: a model of the course, or a Hugging Face directory.",
    ),
    Entry(
        MEASURE,
        "quantize",
        "quantize",
        "A checkpoint in fewer bits: round to nearest, GPTQ or AWQ.",
    ),
    Entry(
        MEASURE,
        "prune",
        "prune",
        "A smaller checkpoint: without the layers, heads and channels that matter least.",
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
    tidy(made)
    made.epilog = "Example: twophase lab. Each command has a --help of its own."
    return made


def _load(entry: Entry) -> Callable[..., Any] | typer.Typer:
    module, _, name = entry.where.partition(":")
    with loading():
        loaded = importlib.import_module(f"twophase.cli.{module}")
    return getattr(loaded, name or entry.name.replace("-", "_"))  # type: ignore[no-any-return]


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
        from twophase.grading.reports.printable import printable

        if debug:
            raise
        sentence, code = explain(error)
        print(f"twophase: {printable(sentence)}", file=sys.stderr)
        sys.exit(code)


def explain(error: Exception) -> tuple[str, int]:
    """One sentence for an error, and the exit code: bad input (2), what stops the grader (3), or
    something else that went wrong (1)."""
    from twophase.grading.errors import CannotWrite, GraderFault

    if isinstance(error, CannotWrite):
        then = "What was written before is whole: mend that, and the same command goes on."
        return f"{error}. {then}", OUR_FAULT
    if isinstance(error, GraderFault):
        return f"nothing could be graded: {error}", OUR_FAULT
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
