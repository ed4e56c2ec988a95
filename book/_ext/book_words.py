"""Short words of code stay whole: the stylesheet breaks inside of the long ones only. Both stay in
one line with the comma or the bracket beside them. Names and options that are no code, in a table's
caption and the title of a box, break after a sign."""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

SHORT = 28  # letters: they fit into a line of the narrowest phone, also inside of a list or a box
SHORTEST = 8  # letters: with their spaces they stay whole, `X @ W`, `make lab`


def mark_short(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Gives the class tp-short to inline code, of which no word is longer than SHORT, and tp-whole
    to that which is not longer than SHORTEST."""
    for code in doctree.findall(nodes.literal):
        if len(code.astext()) <= SHORTEST:
            code["classes"].append("tp-whole")
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


TITLE = re.compile(
    r"<(?P<tag>caption|p)\b(?P<about>[^>]*)>(?:(?!</(?P=tag)>).)*</(?P=tag)>", re.DOTALL
)
NAME = re.compile(r"<[^>]*>|(?<!\S)--?[a-z][\w-]*|[^<\s]{17,}")


def broken_after_signs(page: str) -> str:
    """The page's HTML, where a long name in a caption or a box's title may go on in the next line
    after a sign, and an option, --seeds, may not."""

    def parts(name: re.Match[str]) -> str:
        if name[0].startswith("<"):
            return name[0]
        if name[0].startswith("-"):
            return f'<span class="tp-option">{name[0]}</span>'
        return re.sub(r"(?<=\w[._(/])(?=\w)", "<wbr>", name[0])

    def title(found: re.Match[str]) -> str:
        is_one = re.search(r"admonition-title|tp-table-caption", found["about"])
        return NAME.sub(parts, found[0]) if is_one or found["tag"] == "caption" else found[0]

    return TITLE.sub(title, page)


def glue(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    if "body" in context:
        context["body"] = broken_after_signs(glued(context["body"]))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-resolved", mark_short)
    app.connect("html-page-context", glue)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
