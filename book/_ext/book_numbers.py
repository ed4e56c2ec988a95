"""A chapter has the number that its file's name begins with, also while others are not written yet.

Sphinx counts pages, and sphinx-external-toc, whose collector of the contents is the one in use,
counts them again; here `book/10_sharding` is chapter 10 wherever it stands in the contents. Its
exercises, headings and figures follow.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx_external_toc.collectors import TocTreeCollectorWithStyles

NAME = re.compile(r"(?:book|exercises)/(\d\d)_")
counted = TocTreeCollectorWithStyles.assign_section_numbers


def assign_section_numbers(
    collector: TocTreeCollectorWithStyles, env: BuildEnvironment
) -> list[str]:
    """The counted numbers with the chapter's put first; the documents whose numbers changed."""
    before = env.toc_secnumbers
    counted(collector, env)
    for doc, numbers in env.toc_secnumbers.items():
        if found := NAME.match(doc):
            chapter = int(found[1])
            env.toc_secnumbers[doc] = {
                anchor: renumbered(number, chapter) for anchor, number in numbers.items()
            }
            for node in [*env.tocs[doc].findall(nodes.reference), env.titles[doc]]:
                if node.get("secnumber"):
                    node["secnumber"] = list(renumbered(node["secnumber"], chapter))
    return [doc for doc, numbers in env.toc_secnumbers.items() if numbers != before.get(doc)]


def renumbered(number: Any, chapter: int) -> tuple[int, ...]:
    """A section's number with the chapter's in front; none stays none."""
    return (chapter, *number[1:]) if number else ()


def setup(app: Sphinx) -> dict[str, bool]:
    TocTreeCollectorWithStyles.assign_section_numbers = assign_section_numbers
    return {"parallel_read_safe": True, "parallel_write_safe": True}
