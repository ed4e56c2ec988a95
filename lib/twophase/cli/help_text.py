"""What `--help` prints: paragraphs that fill the terminal, switches without a type, and examples
that can be copied."""

import inspect
import shlex
from typing import Any

import typer

WIDTH = 78  # columns of an example: a terminal has 80, and a margin
CONTINUED = " \\\n    "  # what a shell reads as one line


def tidy(command: Any) -> None:
    """Make the help of a command, and of all below it, fit to be read at 80 columns.

    The docstring's paragraphs "Example: ..." go to the end, as lines that a shell takes as they
    stand.
    """
    paragraphs = [p.strip() for p in inspect.cleandoc(command.help or "").split("\n\n")]
    examples = [_joined(p).removeprefix("Example: ") for p in paragraphs if is_example(p)]
    command.help = "\n\n".join(_joined(p) for p in paragraphs if not is_example(p))
    if examples:
        _print_after(command, _shown(examples))
    for option in (*command.params, command.get_help_option(typer.Context(command))):
        _name_type(option)
    for sub_command in getattr(command, "commands", {}).values():
        tidy(sub_command)


def is_example(paragraph: str) -> bool:
    return paragraph.startswith("Example: ")


def folded(line: str, width: int = WIDTH) -> str:
    """A command line in lines of at most `width` columns, two of them a margin, each but the last
    ending in a backslash. An option stays beside its value."""
    pieces: list[str] = []
    for word in shlex.split(line, posix=False):
        follows = pieces and pieces[-1].startswith("--") and " " not in pieces[-1]
        if follows and not word.startswith("-"):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    lines = [pieces[0]]
    for piece in pieces[1:]:
        margin = 2 if len(lines) == 1 else 4
        if margin + len(lines[-1]) + 1 + len(piece) + len(" \\") <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(piece)
    return CONTINUED.join(lines)


def _joined(paragraph: str) -> str:
    return " ".join(paragraph.split())


def _shown(examples: list[str]) -> str:
    lines = "\n".join(f"  {folded(line)}" for line in examples)
    return f" Example{'s' if len(examples) > 1 else ''}:\n{lines}\n"


def _print_after(command: Any, text: str) -> None:
    """Print the text below the help. (Rich's epilog fills lines with spaces, and a shell does not
    take a backslash before a space for the end of a line.)"""
    help_alone = command.format_help

    def format_help(context: Any, formatter: Any) -> None:
        help_alone(context, formatter)
        typer.echo(text)

    command.format_help = format_help


def _name_type(parameter: Any) -> None:
    """A switch takes no value, so it names no type; a list names what one of its values is, a range
    the kind of number."""
    if parameter is None or parameter.metavar is not None:
        return
    shown = _type_of(parameter)
    parameter.display_type_rich = lambda ctx: shown


def _type_of(parameter: Any) -> str | None:
    kind = parameter.type_descriptor
    if getattr(parameter, "is_flag", False):
        return None
    if kind.is_ranged:
        return f"<{kind.ranged_type_name}>"
    name = parameter.bare_type().removeprefix("list[").removesuffix("]")
    return f"<{name.lower()}>"
