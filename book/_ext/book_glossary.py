"""Hover definitions: every ``{term}`` link carries its definition as its title; house.js shows it
on hover and on focus."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

LONGEST = 400  # characters of a definition that are shown


def definitions(app: Sphinx) -> dict[str, str]:
    """Anchor → the first paragraph of the definition, over all glossaries of the book."""
    found: dict[str, str] = {}
    pages = {
        docname
        for _, _, kind, docname, _, _ in app.env.get_domain("std").get_objects()
        if kind == "term"
    }
    for docname in pages:
        for item in app.env.get_doctree(docname).findall(nodes.definition_list_item):
            meaning = next(iter(item.findall(nodes.definition)), None)
            paragraph = next(iter(meaning.findall(nodes.paragraph)), None) if meaning else None
            if paragraph is None:
                continue
            text = " ".join(paragraph.astext().split())
            for term in item.findall(nodes.term):
                for anchor in term.get("ids", []):
                    found[anchor] = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return found


def add_definitions(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    links = [
        link
        for link in doctree.findall(nodes.reference)
        if any("std-term" in child.get("classes", []) for child in link.findall(nodes.Element))
    ]
    if not links:
        return
    if not hasattr(app, "tp_definitions"):
        app.tp_definitions = definitions(app)  # type: ignore[attr-defined]
    for link in links:
        anchor = link.get("refid") or link.get("refuri", "").rpartition("#")[2]
        text = app.tp_definitions.get(anchor)  # type: ignore[attr-defined]
        if text:
            link["reftitle"] = text
            link["classes"] = [*link.get("classes", []), "tp-term"]


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-resolved", add_definitions)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
