"""``{chapter}``: what stands at the head of a chapter, and ``{sitting}``: where a sitting ends and
the next one starts."""

from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)
LONGEST_SITTING = 45  # minutes
NOTEBOOKS = "_downloads/notebooks"  # in the built book: the chapters to run


def minutes_list(text: str) -> list[int]:
    """``"35, 40"`` as numbers."""
    try:
        values = [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise ValueError(
            f"sittings are minutes separated by commas, such as 35, 40; got {text!r}"
        ) from None
    if not values or min(values) <= 0:
        raise ValueError(
            f"a chapter has one sitting or more, each of a positive number of minutes; got {text!r}"
        )
    return values


def page_link(docname: str, text: str) -> pending_xref:
    link = pending_xref(
        "",
        nodes.inline("", text),
        refdomain=None,
        reftype="doc",
        reftarget="/" + docname,
        refexplicit=True,
        refwarn=True,
    )
    link["refdomain"] = "std"
    return link


class Chapter(SphinxDirective):
    """Options: sittings (minutes each), needs (docnames of chapters). Content: what the reader will
    be able to do, a list."""

    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {
        "sittings": minutes_list,
        "needs": directives.unchanged,
    }

    def run(self) -> list[nodes.Node]:
        sittings: list[int] = self.options.get("sittings", [])
        if not sittings:
            self.complain("`:sittings:` is missing: the minutes of each sitting, such as 35, 40")
        if sittings and max(sittings) > LONGEST_SITTING:
            self.complain(
                f"a sitting of {max(sittings)} minutes is longer than {LONGEST_SITTING}: split it"
            )
        box = nodes.container(classes=["tp-chapter"])
        facts = nodes.paragraph(classes=["tp-facts"])
        if sittings:
            count = (
                "one sitting"
                if len(sittings) == 1
                else f"{len(sittings)} sittings ({', '.join(map(str, sittings))})"
            )
            facts += nodes.strong("", f"{sum(sittings)} minutes")
            facts += nodes.Text(f", estimated, in {count}. ")
        self.add_needs(facts)
        notebook = self.env.docname.replace("book/", "exercises/", 1)
        if notebook in self.env.found_docs:
            facts += nodes.Text(" Exercises: ")
            facts += page_link(notebook, notebook.rpartition("/")[2] + ".ipynb")
            facts += nodes.Text(".")
        name = self.env.docname.rpartition("/")[2]
        facts += nodes.Text(" This page as a notebook: ")
        facts += nodes.reference("", f"{name}.ipynb", refuri=f"../{NOTEBOOKS}/{name}.ipynb")
        facts += nodes.Text(".")
        box += facts
        if self.content:
            box += nodes.paragraph("", "You will be able to", classes=["tp-able"])
            self.state.nested_parse(self.content, self.content_offset, box)
        else:
            self.complain("say in a list what the reader will be able to do")
        return [box]

    def add_needs(self, facts: nodes.paragraph) -> None:
        needs = [name.strip() for name in self.options.get("needs", "").split(",") if name.strip()]
        if not needs:
            facts += nodes.Text("Needs no other chapter.")
            return
        facts += nodes.Text("Needs ")
        for position, name in enumerate(needs):
            if position:
                facts += nodes.Text(", ")
            docname = f"book/{name}"
            if docname in self.env.found_docs:
                facts += page_link(
                    docname, f"chapter {int(name[:2])}" if name[:2].isdigit() else name
                )
            else:
                facts += nodes.Text(name)
                self.complain(f"needs {name!r}, but there is no page {docname}")
        facts += nodes.Text(".")

    def complain(self, message: str) -> None:
        logger.warning("chapter: %s", message, location=self.get_location(), type="chapter")


class Sitting(SphinxDirective):
    """A line that says: one can stop here. The argument is the number of the sitting that starts,
    the content what to remember."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"minutes": directives.positive_int}

    def run(self) -> list[nodes.Node]:
        minutes = self.options.get("minutes")
        if minutes is None or minutes > LONGEST_SITTING:
            logger.warning(
                "sitting: give `:minutes:`, at most %s",
                LONGEST_SITTING,
                location=self.get_location(),
                type="chapter",
            )
        box = nodes.container(classes=["tp-sitting"])
        line = nodes.paragraph()
        line += nodes.strong("", f"Sitting {self.arguments[0]}")
        line += nodes.Text(f", {minutes} minutes. A good place to stop, and to start again.")
        box += line
        self.state.nested_parse(self.content, self.content_offset, box)
        return [box]


def write_notebooks(app: Sphinx, failed: Exception | None) -> None:
    """Each chapter as a notebook, where its head links to."""
    from twophase.lab.chapters import to_notebook

    if failed is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir) / NOTEBOOKS
    folder.mkdir(parents=True, exist_ok=True)
    for page in sorted((Path(app.srcdir) / "book").glob("[0-9][0-9]_*.md")):
        made = to_notebook(page.read_text(encoding="utf-8"), page.stem)
        (folder / f"{page.stem}.ipynb").write_bytes(made)


def warn_two_titles(app: Sphinx, doctree: nodes.document) -> None:
    """A page has one title. (With two, the numbering of sphinx-external-toc fails as well, in words
    that help nobody.)"""
    titles = [child[0].astext() for child in doctree.children if isinstance(child, nodes.section)]
    if len(titles) > 1:
        logger.warning(
            "a page has one title, but this one has %s; write ## for all but the first",
            titles,
            location=app.env.docname,
        )


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("chapter", Chapter)
    app.add_directive("sitting", Sitting)
    app.connect("doctree-read", warn_two_titles)
    app.connect("build-finished", write_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
