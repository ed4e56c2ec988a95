"""Every table in a box that scrolls sideways, its caption above that box: inside of it the caption
would be cut with the table, on a phone."""

import re
from itertools import count
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

WORDS = 24  # letters: a cell with more is a sentence, which a phone gives room to
CELL = re.compile(r"<td\b([^>]*)>(.*?)</td>", re.DOTALL)
LONG = 16  # letters: a first column with more is not squeezed, on a phone, to a word a line
TABLE = re.compile(
    r'(?P<theme><div class="pst-scrollable-table-container">)?<table\b(?P<head>[^>]*)>\s*'
    r"(?:<caption\b[^>]*>(?P<caption>.*?)</caption>)?(?P<body>.*?</table>)(?(theme)\s*</div>)",
    re.DOTALL,
)


def _said(found: re.Match[str]) -> str:
    """A cell, marked if it holds a sentence."""
    letters = len(re.sub(r"<[^>]*>", "", found[2]).strip())
    mark = "" if letters <= WORDS or "class=" in found[1] else ' class="tp-words"'
    return f"<td{found[1]}{mark}>{found[2]}</td>"


def in_boxes(page: str) -> str:
    """The page's HTML with every table in a box of its own, named by the caption above."""
    numbers = count(1)

    def boxed(found: re.Match[str]) -> str:
        caption, head = found["caption"], found["head"]
        said = ""
        if caption:
            name = f"tp-caption-{next(numbers)}"
            said = f'<p class="tp-table-caption" id="{name}">{caption.strip()}</p>\n'
            head += f' aria-labelledby="{name}"'
        first = re.findall(r"<tr\b[^>]*>\s*<t[hd]\b[^>]*>(.*?)</t[hd]>", found["body"], re.DOTALL)
        long = any(len(re.sub(r"<[^>]*>", "", cell).strip()) > LONG for cell in first)
        kind = "tp-tabular tp-long-first" if long else "tp-tabular"
        return (
            f'<div class="{kind}">{said}<div class="tp-scroll"><table{head}>'
            f"{CELL.sub(_said, found['body'])}</div></div>"
        )

    return TABLE.sub(boxed, page)


def box_tables(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    if "body" in context:
        context["body"] = in_boxes(context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", box_tables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
