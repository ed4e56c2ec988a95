"""Short words of code stay whole, and with the comma or the bracket beside them: the stylesheet
breaks inside of the long ones only."""

from docutils import nodes
from sphinx.application import Sphinx

SHORT = 28  # letters: they fit into a line of the narrowest phone, also inside of a list or a box


def mark_short(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Gives the class tp-short to inline code, of which no word is longer than SHORT."""
    for code in doctree.findall(nodes.literal):
        if all(len(word) <= SHORT for word in code.astext().split()):
            code["classes"].append("tp-short")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-resolved", mark_short)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
