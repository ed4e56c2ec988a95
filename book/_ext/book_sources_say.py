"""``{sources-say}``: a box for a claim of the sources that is wrong or hides an assumption, linked
to its row of the ledger."""

from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)
LEDGER_PAGE = "book/errata"


class claim_link(nodes.Inline, nodes.TextElement):  # noqa: N801 (docutils names its nodes so)
    """A link to the ledger's row, resolved when the ledger page is known; attributes: claim."""


class SourcesSay(SphinxDirective):
    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"claim": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        title = "The sources say" + (f": {self.arguments[0]}" if self.arguments else "")
        box = nodes.admonition(classes=["tp-sources-say"])
        box += nodes.title(title, "", *self.state.inline_text(title, self.lineno)[0])
        self.state.nested_parse(self.content, self.content_offset, box)
        claims = [
            claim.strip() for claim in self.options.get("claim", "").split(",") if claim.strip()
        ]
        if claims:
            line = nodes.paragraph(classes=["tp-claims"])
            line += nodes.Text("In the ledger: ")
            for position, claim in enumerate(claims):
                if position:
                    line += nodes.Text(", ")
                line += claim_link(claim, claim, claim=claim)
            box += line
        self.set_source_info(box)
        return [box]


def resolve_claims(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Links each claim to ``book/errata.html#claim-<id>``; warns when the page exists and has no
    such row."""
    known: set[str] | None = None
    for node in list(doctree.findall(claim_link)):
        if LEDGER_PAGE not in app.env.all_docs:
            node.replace_self(nodes.literal(node["claim"], node["claim"]))
            continue
        if known is None:
            ledger = app.env.get_doctree(LEDGER_PAGE)
            known = {
                anchor
                for element in ledger.findall(nodes.Element)
                for anchor in element.get("ids", [])
            }
            known |= {
                text.split('id="')[1].split('"')[0]
                for raw in ledger.findall(nodes.raw)
                for text in _tags_with_id(raw.astext())
            }
        anchor = f"claim-{node['claim']}"
        if anchor not in known:
            logger.warning("sources-say: the ledger has no claim %r", node["claim"], location=node)
        link = nodes.reference(
            "",
            node["claim"],
            refuri=app.builder.get_relative_uri(docname, LEDGER_PAGE) + "#" + anchor,
            internal=True,
        )
        node.replace_self(link)


def _tags_with_id(html: str) -> list[str]:
    return [piece for piece in html.split("<") if 'id="' in piece]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(claim_link)
    app.add_directive("sources-say", SourcesSay)
    app.connect("doctree-resolved", resolve_claims)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
