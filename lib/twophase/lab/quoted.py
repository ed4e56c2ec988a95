"""In a chapter's notebook: what the run gives to the names that the sentences quote.

The built page has these numbers in its sentences. A notebook's text cannot change, so the cell that
computes a number says, below its output, what the text calls it.
"""

from __future__ import annotations

import html
from typing import Any

LOOK = "opacity:.75;font-size:.9em;margin:.3em 0;max-width:46em"


class Quoted:
    """Names and their words, one line each."""

    def __init__(self, words: dict[str, str]) -> None:
        self.words = words

    def __repr__(self) -> str:
        lines = [f"  {name}: {said}" for name, said in self.words.items()]
        return "\n".join(["In the text:", *lines])

    def _repr_html_(self) -> str:
        lines = (f"<code>{html.escape(n)}</code>: {html.escape(w)}" for n, w in self.words.items())
        return f'<div style="{LOOK}">In the text: {" · ".join(lines)}</div>'


def say_quoted_words() -> None:
    """From now on each cell of this notebook that gives words to names of the text (`glue`) says so
    below its output. Does nothing where no notebook is around."""
    import myst_nb  # type: ignore[import-untyped]
    from IPython.core.getipython import get_ipython
    from IPython.display import display

    shell: Any = get_ipython()
    if shell is None or getattr(myst_nb.glue, "says", False):
        return
    words: dict[str, str] = {}

    def glue(name: str, variable: object, display: bool = True) -> None:
        words[name] = str(variable)

    def tell(*_: object) -> None:
        if words:
            display(Quoted(dict(words)))
            words.clear()

    glue.says = True  # type: ignore[attr-defined]
    myst_nb.glue = glue
    shell.events.register("post_run_cell", tell)
