"""The style sheets without the rules that no page uses, the icon font without the icons: of the
theme's 550 kB a page needs a fifth.

A rule goes if every one of its selectors asks for a class or an id that stands in no page and in no
script. What a script may make is therefore kept.
"""

import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tinycss2
from fontTools import subset
from sphinx.application import Sphinx
from tinycss2.ast import Node

WORD = re.compile(r"-?[A-Za-z_][\w-]*")
ASKED = re.compile(r"[.#](-?[A-Za-z_](?:[\w-]|\\.)*)")
NOT = re.compile(r":not\((?:[^()]|\([^()]*\))*\)")
INSIDE = {"media", "supports", "layer", "container"}  # rules that hold rules
ICON = re.compile(r"[\ue000-\uf8ff]|\\[ef][0-9a-f]{3}\b", re.I)
OTHER_FORM = re.compile(r"url\([^)]*\.woff2\) format\([^)]*\),(?=url\([^)]*fontawesome)")
logging.getLogger("fontTools").setLevel(logging.WARNING)
ICON_FONTS = "_static/vendor/fontawesome/webfonts"


def words_of(pages: Iterable[str], scripts: Iterable[str]) -> set[str]:
    """Every name that a page gives to an element, and every word of a script."""
    found: set[str] = set()
    for page in pages:
        for value in re.findall(r'\b(?:class|id)="([^"]*)"', page):
            found.update(value.split())
        for script in re.findall(r"<script\b[^>]*>(.*?)</script>", page, re.S):
            found.update(WORD.findall(script))
    for script in scripts:
        found.update(WORD.findall(script))
    return found


def trimmed(css: str, words: set[str]) -> str:
    """The style sheet without comments and without rules for what `words` does not have."""
    return "".join(_kept(tinycss2.parse_stylesheet(css, skip_comments=True), words))


def _kept(rules: list[Node], words: set[str]) -> Iterable[str]:
    for rule in rules:
        if rule.type == "qualified-rule":
            chosen = [s for s in _selectors(tinycss2.serialize(rule.prelude)) if _lives(s, words)]
            body = _short(tinycss2.serialize(rule.content))
            if chosen and body:
                yield f"{','.join(chosen)}{{{body}}}"
        elif rule.type == "at-rule" and rule.lower_at_keyword in INSIDE and rule.content:
            inner = tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True)
            body = "".join(_kept(inner, words))
            if body:
                yield f"@{rule.at_keyword} {tinycss2.serialize(rule.prelude).strip()}{{{body}}}"
        elif rule.type != "whitespace":
            yield rule.serialize()


def _selectors(prelude: str) -> list[str]:
    """The parts of a selector list; commas within brackets do not part them."""
    parts, depth, last = [], 0, 0
    for at, sign in enumerate(prelude):
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and depth == 0:
            parts.append(prelude[last:at])
            last = at + 1
    return [re.sub(r"\s+", " ", part).strip() for part in [*parts, prelude[last:]]]


def _lives(selector: str, words: set[str]) -> bool:
    """Whether something on a page may match: one of :is(a, b) is enough, so these are not asked."""
    plain = NOT.sub("", selector)
    plain = re.sub(r":(?:is|where|has)\((?:[^()]|\([^()]*\))*\)", "", plain)
    plain = re.sub(r"\[[^\]]*\]", "", plain)
    return all(name.replace("\\", "") in words for name in ASKED.findall(plain))


def _short(body: str) -> str:
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    return re.sub(r"\s*\n\s*", " ", body).strip().rstrip(";").strip()


def cut_icons(font: Path, icons: set[str]) -> None:
    """The font with these icons alone."""
    options = subset.Options(hinting=False, notdef_outline=True, layout_features=[])
    cut = subset.load_font(str(font), options)
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=[int(i[1:], 16) if i[0] == "\\" else ord(i) for i in icons])
    cutter.subset(cut)
    subset.save_font(cut, str(font), options)


def trim(app: Sphinx, failed: Exception | None) -> None:
    if failed is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir)
    pages = [p.read_text("utf8") for p in folder.rglob("*.html") if "_static" not in p.parts]
    scripts = [p.read_text("utf8") for p in (folder / "_static").rglob("*.js")]
    words = words_of(pages, scripts)
    left = ""
    for sheet in sorted((folder / "_static").rglob("*.css")):
        css = OTHER_FORM.sub("", trimmed(sheet.read_text("utf8"), words))
        sheet.write_text(css, "utf8")
        left += css
    for font in sorted((folder / ICON_FONTS).glob("*.ttf")):
        cut_icons(font, set(ICON.findall(left)))
        font.with_suffix(".woff2").unlink(missing_ok=True)  # its style sheet asks for the other


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", trim, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
