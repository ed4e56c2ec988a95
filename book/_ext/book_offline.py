"""No page asks the network for anything: an outside file fails the build."""

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)
OUTSIDE = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc=[\"'](?:https?:)?//[^\"']+[\"']"
    r"|<link\b(?=[^>]*\brel=[\"'](?:stylesheet|preload|icon|preconnect|dns-prefetch)[\"'])[^>]*\bhref=[\"'](?:https?:)?//[^\"']+[\"']",
    re.IGNORECASE,
)


def outside_requests(html: str) -> list[str]:
    """The tags of a page that would make a browser ask another host, in order."""
    return [match.group(0)[:160] for match in OUTSIDE.finditer(html)]


def warn_outside(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    for page in sorted(Path(app.outdir).rglob("*.html")):
        if "_static" in page.parts:
            continue
        for tag in outside_requests(page.read_text("utf8")):
            logger.warning("%s asks another host: %s", page.relative_to(app.outdir), tag)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", warn_outside)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
