"""A picture that says nothing to a reader who cannot see it is a warning, and so fails the
build."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


def warn_missing_alt(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for image in doctree.findall(nodes.image):
        if not image.get("alt", "").strip():
            logger.warning(
                "this picture has no alt text: for a cell add `mystnb: {image: {alt: ...}}` to its "
                "metadata, for an image "
                "or figure add `:alt:`",
                location=image,
                type="alt",
            )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-resolved", warn_missing_alt, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
