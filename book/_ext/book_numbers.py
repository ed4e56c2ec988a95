"""A chapter has the number that its file's name begins with, also while others are not written yet.

Sphinx counts pages; here `book/10_sharding` is chapter 10 wherever it stands in the contents. Its
exercises, headings and figures follow.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.environment.collectors.toctree import TocTreeCollector

NAME = re.compile(r"(?:book|exercises)/(\d\d)_")
sphinx_numbers = TocTreeCollector.assign_section_numbers


def assign_section_numbers(collector: TocTreeCollector, env: BuildEnvironment) -> list[str]:
    """Sphinx's own numbers with the chapter's put first; the documents whose numbers changed."""
    before = env.toc_secnumbers
    sphinx_numbers(collector, env)
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
    TocTreeCollector.assign_section_numbers = assign_section_numbers  # type: ignore[method-assign]
    return {"parallel_read_safe": True, "parallel_write_safe": True}
