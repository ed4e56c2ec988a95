"""A notebook's cell as Python: without IPython's magics, prompts and indent."""

from __future__ import annotations

import ast
import re
import warnings

# lines that are IPython's, not Python's: %magics, !commands, `files = !ls`, `torch.arange?`; the
# first three may go on in the next line
MAGIC = re.compile(
    r"^([ \t]*+)(?:[%!?](?:.*\\\n)*+.*|([\w, \t.\[\]'\"]++=)[ \t]*+[%!](?:.*\\\n)*+.*"
    r"|[\w.*\[\]'\"]++\?\??[ \t]*+)$",
    re.M,
)


def parsed(source: str) -> ast.Module | None:
    """A text as Python; None if it is none, or too deep."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes that Python does not know
        try:
            return ast.parse(source)
        except Exception:  # SyntaxError, and whatever else the parser raises on odd text
            return None


def parsed_as_a_cell(source: str) -> ast.Module | None:
    """A cell as Python, with `None` where a line is IPython's own. First as it stands: a line of
    Python may begin with %, too. Then without prompts and an indent of all its lines, as IPython
    runs it; its lines stay as many."""
    tree = parsed(source) or parsed(MAGIC.sub(_none, source))
    if tree is None and (bare := without_prompts(source)) != source:
        return parsed(bare) or parsed(MAGIC.sub(_none, bare))
    return tree


def readable(source: str) -> str:
    """The text of which `parsed_as_a_cell` makes its tree, IPython's own lines as they are: the
    cell, or what is left of it without prompts and indent."""
    stands = parsed(source) or parsed(MAGIC.sub(_none, source))
    return source if stands else without_prompts(source)


def without_prompts(source: str) -> str:
    """A cell without what IPython takes off first: `>>> `, `In [3]: `, an indent of all lines."""
    from IPython.core import inputtransformer2 as ipython

    lines = source.splitlines(keepends=True)
    blank = next((n for n, line in enumerate(lines) if line.strip()), 0)
    bare = lines[blank:]
    for strip in (ipython.leading_indent, ipython.classic_prompt, ipython.ipython_prompt):
        bare = strip(bare)
    return "".join([*lines[:blank], *bare])


def _none(line: re.Match[str]) -> str:
    lines_more = "\n" * line[0].count("\n")
    return f"{line[1]}{line[2] or ''}({lines_more}None)"
