"""No page asks the network for anything: MathJax comes from an installed package, and outside files
fail the build."""

import importlib.util
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging
from sphinx.util.fileutil import copy_asset

logger = logging.getLogger(__name__)
# What tex-chtml.js may load at run time: fonts, and TeX packages it does not contain.
MATHJAX_PARTS = ["tex-chtml.js", "output/chtml/fonts/woff-v2", "input/tex/extensions"]
OUTSIDE = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc=[\"'](?:https?:)?//[^\"']+[\"']"
    r"|<link\b(?=[^>]*\brel=[\"'](?:stylesheet|preload|icon|preconnect|dns-prefetch)[\"'])[^>]*\bhref=[\"'](?:https?:)?//[^\"']+[\"']",
    re.IGNORECASE,
)


def outside_requests(html: str) -> list[str]:
    """The tags of a page that would make a browser ask another host, in order."""
    return [match.group(0)[:160] for match in OUTSIDE.finditer(html)]


def mathjax_folder() -> Path:
    spec = importlib.util.find_spec("sphinx-mathjax-offline")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            "sphinx-mathjax-offline is not installed: run `pip install -r requirements.txt`"
        )
    return Path(spec.origin).parent / "static" / "mathjax"


def use_local_mathjax(app: Sphinx, config: Config) -> None:
    config.mathjax_path = "mathjax/tex-chtml.js"
    # the Tab key goes to what can be used; formulas are read out where they stand
    options = (config.mathjax3_config or {}).get("options", {})
    options["menuOptions"] = {"settings": {"inTabOrder": False}}
    config.mathjax3_config = {**(config.mathjax3_config or {}), "options": options}


def copy_mathjax(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    target = Path(app.outdir) / "_static" / "mathjax"
    for part in MATHJAX_PARTS:
        source = mathjax_folder() / part
        place = target / part if source.is_dir() else (target / part).parent
        if source.exists() and not (target / part).exists():
            place.mkdir(parents=True, exist_ok=True)
            copy_asset(str(source), str(place))


def warn_outside(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    for page in sorted(Path(app.outdir).rglob("*.html")):
        if "_static" in page.parts:
            continue
        for tag in outside_requests(page.read_text("utf8")):
            logger.warning("%s asks another host: %s", page.relative_to(app.outdir), tag)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", use_local_mathjax)
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", warn_outside)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
