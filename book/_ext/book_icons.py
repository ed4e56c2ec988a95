"""The icons that pages use, in place of the theme's script that holds two thousand (1.5 MB a page).

The theme names an icon by classes (`fa-solid fa-bars`), and Font Awesome's script puts its drawing
there. Once the pages are written, one that knows the icons found on them takes its place; their
drawings are that script's own.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)
SCRIPT = "_static/scripts/fontawesome.js"
STYLES = {"fa-solid": "fas", "fa-regular": "far", "fa-brands": "fab"}
USED = re.compile(r'<(?:i|span)\b[^>]*\bclass="([^"]*\bfa-[^"]*)"')
BY_THE_THEME = "fa-solid fa-xmark"  # its own script makes these
SIZES = {"fa-lg", "fa-sm", "fa-xs", "fa-fw"}
Icon = tuple[int, int, str]  # width, height, path
PUT = (Path(__file__).parent / "icons.js").read_text("utf8")


def used(pages: Iterable[str]) -> set[str]:
    """The two classes of every icon that the pages name, style and name."""
    found = {BY_THE_THEME}
    for page in pages:
        for classes in set(USED.findall(page)):
            words = set(classes.split())
            styles = [
                old if old in words else new for new, old in STYLES.items() if {new, old} & words
            ]
            names = {w for w in words if w.startswith("fa-")} - SIZES - set(STYLES)
            found |= {f"{styles[0]} {name}" for name in names if styles}
    return found


def drawing(script: str, icon: str) -> Icon | None:
    """The drawing of an icon in Font Awesome's script, in which brands, regular and solid follow
    each other."""
    style, name = icon.split()
    end = script.index(f'd("{STYLES.get(style, style)}",p)')
    known = re.compile(
        rf'[{{,]"?{re.escape(name.removeprefix("fa-"))}"?:'
        r'\[(\d+),(\d+),\[[^\]]*\],"[0-9a-f]+","([^"]+)"\]'
    )
    found = known.findall(script[:end])
    return (int(found[-1][0]), int(found[-1][1]), found[-1][2]) if found else None


def replace_script(app: Sphinx, failed: Exception | None) -> None:
    place = Path(app.outdir) / SCRIPT
    if failed is not None or app.builder.format != "html" or not place.exists():
        return
    script = place.read_text("utf8")
    if script.startswith(PUT[:40]):
        return
    pages = [
        p.read_text("utf8") for p in Path(app.outdir).rglob("*.html") if "_static" not in p.parts
    ]
    drawn = {icon: drawing(script, icon) for icon in sorted(used(pages))}
    for icon in [icon for icon, shape in drawn.items() if shape is None]:
        logger.warning("the theme's script has no icon %s", icon, type="icons")
    known = json.dumps({icon: shape for icon, shape in drawn.items() if shape})
    place.write_text(PUT.replace("ICONS_OF_THE_BOOK", known), "utf8")
    place.with_name(f"{place.name}.map").unlink(missing_ok=True)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", replace_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
