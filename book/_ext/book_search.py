"""What the search page shows below each result: the passage that has the words.

Sphinx's own excerpts need a request for each page, which a page on disk may not make; so the text
of the book is a script of its own, which the search page alone loads.
"""

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

TEXTS = "search_texts.js"
SCRIPTS = (TEXTS, "search_excerpts.js")
INDEX = re.compile(
    r'<script src="[^"]*\b(?:searchtools|language_data|searchindex)\.js"></script>\s*'
)
READ = (nodes.paragraph, nodes.caption, nodes.term)  # what an excerpt may show
Passage = tuple[str, str, str]  # of a section: id, title, text


def passages(document: nodes.document) -> list[Passage]:
    """The prose of a page, section by section, sections without any left out."""
    found = []
    for section in document.findall(nodes.section):
        texts = [plain(node) for node in section.findall(_is_read) if _section(node) is section]
        if any(texts):
            found.append((section["ids"][0], plain(section[0]), " ".join(filter(None, texts))))
    return found


def _is_read(node: nodes.Node) -> bool:
    return isinstance(node, READ) and not _points_on(node)


def _points_on(node: nodes.Element) -> bool:
    """Whether it is the same on every chapter's head: minutes, what it needs, its notebooks."""
    return isinstance(node.parent, nodes.container) and "tp-chapter" in node.parent["classes"]


def _section(node: nodes.Node) -> nodes.Node | None:
    while node is not None and not isinstance(node, nodes.section):
        node = node.parent
    return node


def plain(node: nodes.Node) -> str:
    """Its words on one line; a formula in them as a person would type it."""
    if isinstance(node, nodes.math):
        return formula(node.astext())
    if isinstance(node, nodes.Text):
        return " ".join(node.astext().split()) if node.astext().strip() else " "
    if isinstance(node, nodes.raw | nodes.math_block | nodes.comment):
        return ""
    inner = "".join(_spaced(child) for child in node.children)
    return " ".join(inner.split()) if isinstance(node, (*READ, nodes.title)) else inner


def _spaced(node: nodes.Node) -> str:
    if isinstance(node, nodes.Text):
        return re.sub(r"\s+", " ", node.astext())
    return plain(node)


def formula(tex: str) -> str:
    """TeX without what only TeX needs: `\\frac{a}{b}` is `a/b`, `\\mathrm{x}_{i}` is `x_i`."""
    tex = re.sub(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}", r"\1/\2", tex)
    tex = re.sub(r"\\(?:cdot|times)\b", "·", tex)
    tex = re.sub(r"\\(?:text|mathrm|operatorname|mathbf|mathit)\b", "", tex)
    tex = re.sub(r"\\[,;:! ]|\\q?quad\b", " ", tex)
    return " ".join(re.sub(r"[\\{}]", "", tex).split())


def collect(app: Sphinx, document: nodes.document, docname: str) -> None:
    if app.builder.format == "html":
        _texts(app)[docname] = passages(document)


def _texts(app: Sphinx) -> dict[str, list[Passage]]:
    if not hasattr(app, "twophase_search_texts"):
        app.twophase_search_texts = {}  # type: ignore[attr-defined]
    return app.twophase_search_texts  # type: ignore[attr-defined, no-any-return]


def load_on_search_page(app: Sphinx, pagename: str, *_: Any) -> None:
    if pagename == "search":
        for script in SCRIPTS:
            app.add_js_file(script, loading_method="defer")


def write_texts(app: Sphinx, failed: Exception | None) -> None:
    if failed is None and app.builder.format == "html":
        content = json.dumps(_texts(app), ensure_ascii=False, separators=(",", ":"))
        place = Path(app.outdir) / "_static" / TEXTS
        place.write_text(f"window.twophaseTexts = {content};\n", "utf8")


def without_index(page: str) -> str:
    """A page without the scripts that the theme needs for searching while one types, which is off
    here: the index of the whole book is larger than most chapters."""
    return INDEX.sub("", page)


def drop_index(app: Sphinx, failed: Exception | None) -> None:
    if failed is None and app.builder.format == "html":
        for place in Path(app.outdir).rglob("*.html"):
            if place.name != "search.html":
                page = place.read_text("utf8")
                if page != (lighter := without_index(page)):
                    place.write_text(lighter, "utf8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-resolved", collect, priority=800)
    app.connect("html-page-context", load_on_search_page)
    app.connect("build-finished", write_texts)
    app.connect("build-finished", drop_index)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
