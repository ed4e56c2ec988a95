"""A chapter of the book as a notebook to run: its cells as they are, its text as plain Markdown.

What only a page can do (questions that answer, things to play with) becomes text or a remark. A
number that the page quotes from its run stands as the name that the cells give it; a cell of our
own at the top (`quoted.py`) makes the cells say these names and their numbers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

BLOCK = re.compile(r"^:::\{(?P<name>[a-z-]+)\} ?(?P<argument>.*)\n(?P<body>(?:.*\n)*?):::$", re.M)
OPTION = re.compile(r"^:(?P<name>[a-z-]+): ?(?P<value>.*)\n?", re.M)
MATH = re.compile(r"^```\{math\}\n(?P<body>(?:.*\n)*?)```$", re.M)
FIGURE = re.compile(r"^ *figure: *\{name: (?P<name>[\w-]+),", re.M)
ROLE = re.compile(r"\{(?P<role>[a-z:]+)\}`(?P<text>[^`]+)`")
GLUE = re.compile(r"\{glue[a-z:]*\}`(?P<name>[^`]+)`")
CHOICE = re.compile(r"^- \[(?P<mark>[ x])\] (?P<text>.*?) \|\| (?P<reason>.*)$", re.M)
HEAD = (
    "*This is the page {stem} as a notebook: run its cells from the top. The page itself has the"
    " numbers in its sentences, the questions' answers and the things to play with.*"
)
QUOTED = (
    " *Here a sentence that quotes your run has a name such as `{name}` instead; below the cell"
    " that computes it stands what it is.*"
)
SAY_QUOTED = (
    "from twophase.lab.quoted import say_quoted_words\n\n"
    "say_quoted_words()  # below each cell: what the text calls its numbers"
)


def to_notebook(page: str, stem: str) -> bytes:
    """The MyST page as the bytes of a notebook (nbformat 4), `metadata.twophase.page` the digest of
    what it was made from. The same page gives the same bytes."""
    import jupytext  # a learner's notebook, which imports this room, needs none of it

    nb = jupytext.reads(numbered(page, stem), "md:myst")
    numbers = figure_numbers(page, stem)
    nb.cells = [part for cell in nb.cells for part in (cell, *_caption(cell, numbers))]
    quoted = GLUE.search(page)
    if quoted:
        nb.cells.insert(1, _folded(SAY_QUOTED))
    for number, cell in enumerate(nb.cells):
        cell.id = f"{stem}-{number}"
        if cell.cell_type == "markdown":
            cell.source = plain(cell.source)
        else:
            folded = "hide-input" in cell.metadata.get("tags", [])
            cell.metadata = {"jupyter": {"source_hidden": True}} if folded else {}
    title, _, rest = nb.cells[0].source.partition("\n")
    head = HEAD.format(stem=stem) + (QUOTED.format(name=quoted["name"]) if quoted else "")
    nb.cells[0].source = f"{title}\n\n{head}\n{rest}"
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    nb.metadata = {"kernelspec": kernel, "twophase": {"page": digest(page)}}
    nb.nbformat, nb.nbformat_minor = 4, 5
    return (json.dumps(nb, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode("utf-8")


def figure_numbers(page: str, stem: str) -> dict[str, str]:
    """What the page calls each of its figures, by name: `Fig. 4.2`, the second of chapter 4."""
    chapter = stem[:2].lstrip("0")
    return {m["name"]: f"Fig. {chapter}.{n}" for n, m in enumerate(FIGURE.finditer(page), 1)}


def numbered(page: str, stem: str) -> str:
    """The page with its figures called by their numbers."""
    for name, number in figure_numbers(page, stem).items():
        page = page.replace(f"{{numref}}`{name}`", number)
    return page


def _caption(cell: Any, numbers: dict[str, str]) -> list[Any]:
    """A cell with the caption of a cell's figure, if it has one."""
    from nbformat.v4 import new_markdown_cell

    figure = cell.metadata.get("mystnb", {}).get("figure", {})
    if "caption" not in figure:
        return []
    said = f"{numbers.get(figure.get('name', ''), '')} {figure['caption']}".strip()
    return [new_markdown_cell(f"*{said}*")]


def _folded(source: str) -> Any:
    """A cell of code whose source is hidden until somebody unfolds it."""
    from nbformat.v4 import new_code_cell

    cell = new_code_cell(source)
    cell.metadata = {"tags": ["hide-input"]}
    return cell


def digest(page: str) -> str:
    """What tells one release of a page from another."""
    return hashlib.sha256(page.encode("utf-8")).hexdigest()[:16]


def plain(markdown: str) -> str:
    """MyST as Markdown that JupyterLab shows: blocks, formulas and roles in words."""
    text = BLOCK.sub(_block, markdown)
    text = MATH.sub(lambda m: f"$$\n{OPTION.sub('', m['body'])}$$", text)
    return ROLE.sub(_role, text)


def _block(found: re.Match[str]) -> str:
    options = {m["name"]: m["value"] for m in OPTION.finditer(found["body"])}
    body = OPTION.sub("", found["body"]).strip("\n")
    write = BLOCKS.get(found["name"])
    return body if write is None else write(found["argument"], options, body)


def _chapter(argument: str, options: dict[str, str], body: str) -> str:
    return f"You will be able to\n\n{body}"


def _sitting(argument: str, options: dict[str, str], body: str) -> str:
    minutes = options.get("minutes", "")
    return f"---\n\n**Sitting {argument}**, {minutes} minutes.\n\n{body}"


def _exercises(argument: str, options: dict[str, str], body: str) -> str:
    slugs = [slug.strip() for slug in options.get("only", "").split(",") if slug.strip()]
    named = ", ".join(f"`{argument}-{slug}`" for slug in slugs)
    return f"**Exercises** of {argument}{': ' + named if named else ''}, in their own notebook."


def _play(argument: str, options: dict[str, str], body: str) -> str:
    return "*(On the page there is something to play with here.)*"


def _question(argument: str, options: dict[str, str], body: str) -> str:
    choices = list(CHOICE.finditer(body))
    asked = "\n".join(f"- {c['text']}" for c in choices)
    answers = "\n".join(
        f"- **{'Right' if c['mark'] == 'x' else 'No'}**: {c['text']} {c['reason']}" for c in choices
    )
    before = body[: choices[0].start()].strip() if choices else body
    return "\n\n".join(
        part
        for part in (
            f"**Question.** {argument}",
            before,
            asked,
            f"<details><summary>Answers</summary>\n\n{answers}\n\n</details>",
        )
        if part
    )


def _sources_say(argument: str, options: dict[str, str], body: str) -> str:
    lines = [f"**The sources say: {argument}**", "", *body.splitlines()]
    return "\n".join(f"> {line}".rstrip() for line in lines)


BLOCKS: dict[str, Callable[[str, dict[str, str], str], str]] = {
    "chapter": _chapter,
    "sitting": _sitting,
    "exercises": _exercises,
    "play": _play,
    "question": _question,
    "sources-say": _sources_say,
}


def _role(found: re.Match[str]) -> str:
    """A term or a reference by its words, a number of the run by its name."""
    role, words = found["role"], found["text"].partition(" <")[0].strip()
    if role.startswith("py:"):
        return f"`{words.removeprefix('~').rpartition('.')[2]}`"
    if role.startswith("glue"):
        return f"`{words}`"
    return f"({words})" if role.startswith(("cite", "eq")) else words
