"""Short words of code stay whole: the stylesheet breaks inside of the long ones only. Both stay in
one line with the comma or the bracket beside them."""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

SHORT = 28  # letters: they fit into a line of the narrowest phone, also inside of a list or a box


def mark_short(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Gives the class tp-short to inline code, of which no word is longer than SHORT."""
    for code in doctree.findall(nodes.literal):
        if all(len(word) <= SHORT for word in code.astext().split()):
            code["classes"].append("tp-short")


# A long word is a box of its own, between which and a comma a line might end.
LONG = re.compile(
    r"(?P<before>[(\[“]?)"
    r'(?P<code>(?P<link><a\b[^>]*>)?<code class="(?:(?!tp-short)[^"])*\bliteral\b[^"]*">'
    r"(?:(?!</code>).)*</code>(?(link)</a>))"
    r"(?P<after>[.,;:!?)\]”’…]*)"
)


def glued(page: str) -> str:
    """The page's HTML with each long word of code on one line with the signs beside it."""
    return LONG.sub(
        lambda m: f'<span class="tp-glued">{m[0]}</span>' if m["before"] or m["after"] else m[0],
        page,
    )


def glue(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    if "body" in context:
        context["body"] = glued(context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-resolved", mark_short)
    app.connect("html-page-context", glue)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
