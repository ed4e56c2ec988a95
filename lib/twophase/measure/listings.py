"""The package's own code on a chapter's page."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

COLUMNS = 80  # what a page shows without scrolling


class Listing:
    """The source of functions or methods, as a page shows it; its text in a terminal.

    ValueError if a line has more than `COLUMNS` characters: the page would cut it at the right.
    """

    def __init__(self, *functions: Callable[..., Any]) -> None:
        self.source = "\n".join(textwrap.dedent(inspect.getsource(f)) for f in functions)
        for line in self.source.splitlines():
            if len(line) > COLUMNS:
                raise ValueError(
                    f"A page shows {COLUMNS} columns, and this line has {len(line)}: {line.strip()}"
                )

    def _repr_markdown_(self) -> str:
        return f"```python\n{self.source}```"

    def __repr__(self) -> str:
        return self.source
