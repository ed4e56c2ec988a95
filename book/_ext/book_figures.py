"""The figures of cells become part of the page, in the site's colors and fonts, one form for a page
and one for a phone. A picture that says nothing to a reader who cannot see it is a warning, and so
fails the build."""

import re
from base64 import b64decode
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

logger = logging.getLogger(__name__)

# what twophase.measure.plots draws with -> the site's variables
COLORS = {
    "#0072b2": "decode",
    "#d55e00": "prefill",
    "#009e73": "third",
    "#cc79a7": "fifth",
    "#e69f00": "fourth",
    "#56b4e9": "right",
    "#f0e442": "say-back",
    "#000000": "ink",
    "#222222": "ink",
    "#d9d9d9": "line",
    "#ffffff": "paper",
}
LONG = re.compile(r"-?\b\d{1,3}\.\d{2,}(?![\d.])")
ON_A_PHONE = {"Left": "Above", "Right": "Below", "left": "above", "right": "below"}
SIDES = re.compile(r"\b(Left|Right)(?=:)|(?<=\()(left|right)(?=\))")
# marks of one style, one after the other, alone in a group
MARKS = re.compile(
    r'<g((?: [^>]*)?)>(<use [^>]*? style="([^"]*)"/>(?:<use [^>]*? style="\3"/>)+)</g>'
)
NARROW = re.compile(r'<metadata id="twophase-narrow">(.*?)</metadata>', re.S)
NO_ALT = (
    "this picture has no alt text: for a cell add `mystnb: {image: {alt: ...}}` to its metadata,"
    " for an image or figure add `:alt:`"
)


def inline(svg: str, alt: str, key: str, css_class: str) -> str:
    """A figure as part of a page: our variables for its colors, `key` before its ids. KeyError for
    a color that the site does not have."""
    svg = svg[svg.index("<svg") :]
    # its style sheet would reach the whole page
    svg = re.sub(r"<metadata.*?</metadata>|<style type.*?</style>|<!--.*?-->", "", svg, flags=re.S)
    svg = with_short_ids(svg, key)
    svg = re.sub(r"#[0-9a-fA-F]{6}\b", lambda m: f"var(--tp-{COLORS[m[0].lower()]})", svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: var(--tp-ui)", svg)
    wide = re.search(r'width="([\d.]+)pt"', svg)
    if wide is None:
        raise ValueError("an SVG of matplotlib has a width in points.")
    name = (
        f'<svg class="{css_class}" role="img" aria-label="{escape(alt)}"'
        f' style="max-width:{float(wide[1]) * 4 / 3:.0f}px" '
    )
    body = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    return shortened(body.strip()).replace("<svg ", name, 1)


def with_short_ids(svg: str, key: str) -> str:
    """The drawing with ids of its own, `key` and a number for each that something asks for: the id
    of a mark is written once per point."""
    asked = dict.fromkeys(re.findall(r'(?:href="|url\()#([^")]+)', svg))
    short = {name: f"{key}{number}" for number, name in enumerate(asked)}
    places = r'(?<= id=")[^"]*|(?<=href="#)[^"]*|(?<=url\(#)[^)]*'
    return re.sub(places, lambda m: short.get(m[0], key + m[0]), svg)


def shortened(svg: str) -> str:
    """What matplotlib wrote, in half as many characters: four digits of a number (a tenth of a
    pixel), no names that nothing asks for, no turns by 0 degrees, no groups without a meaning, a
    style that all marks of a group have said once."""
    svg = svg.replace("font-family: var(--tp-ui); ", "").replace("; font-family: var(--tp-ui)", "")
    svg = svg.replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "").replace(
        "xlink:href", "href"
    )
    svg = svg.replace(' xmlns="http://www.w3.org/2000/svg" version="1.1"', "")
    svg = re.sub(r' transform="rotate\(-?0 [^)]*\)"', "", svg)
    asked = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in asked else "", svg)
    svg = re.sub(r"<[^>]*>", lambda tag: LONG.sub(lambda m: f"{float(m[0]):.4g}", tag[0]), svg)
    svg = re.sub(
        r'(?<=\bd=")[^"]*', lambda m: re.sub(r"\s*([A-Za-z])\s*", r"\1", m[0]).strip(), svg
    )
    svg = re.sub(r'(?<=style=")[^"]*', lambda m: re.sub(r"([:;]) ", r"\1", m[0]), svg)
    svg = re.sub(r">\s*\n\s*<", "><", svg).replace("<defs></defs>", "")
    svg = MARKS.sub(_styled_once, svg)
    return _without_plain_groups(svg)


def _styled_once(group: re.Match[str]) -> str:
    """The group with the style of its marks, unless it has one of its own."""
    says, marks, style = group.groups()
    if "style=" in says:
        return group[0]
    return f'<g{says} style="{style}">' + marks.replace(f' style="{style}"', "") + "</g>"


def _without_plain_groups(svg: str) -> str:
    """The drawing without `<g>` that says nothing, and its end."""
    kept, open_groups = [], []
    for part in re.split(r"(<g>|<g [^>]*>|</g>)", svg):
        if part == "</g>":
            kept.append(part if open_groups.pop() else "")
        elif part.startswith(("<g>", "<g ")):
            open_groups.append(part != "<g>")
            kept.append(part if part != "<g>" else "")
        else:
            kept.append(part)
    return "".join(kept)


def figure(svg: str, alt: str, key: str) -> str:
    """All forms of a figure, of which the page shows the one that there is room for."""
    hidden = NARROW.search(svg)
    if hidden is None:
        return f'<div class="tp-figure">{inline(svg, alt, key, "tp-any")}</div>'
    narrow = b64decode(hidden[1]).decode("utf8")
    return (
        f'<div class="tp-figure">{inline(svg, alt, key, "tp-wide")}'
        f"{inline(narrow, alt, key + 'n-', 'tp-narrow')}</div>"
    )


class InlineFigures(SphinxPostTransform):
    """Puts the SVG of every cell's figure into the page, unless it holds pixels."""

    default_priority = 5
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        for number, image in enumerate(list(self.document.findall(nodes.image))):
            path = Path(self.app.srcdir, image["uri"])
            if "jupyter_execute" not in path.parts or path.suffix != ".svg":
                continue
            svg, alt = path.read_text("utf8"), image.get("alt", "").strip()
            if "<image" in svg or not alt:  # without alt it is warned of below
                continue
            try:
                made = figure(svg, alt, f"f{number}-")
            except KeyError as error:
                said = (
                    "a figure has the color %s, which the site has no variable for: take those of"
                )
                said += " twophase.measure.plots"
                logger.warning(said, error, location=image, type="figure")
                continue
            image.replace_self(nodes.raw("", made, format="html"))


class SidesOfPanels(SphinxPostTransform):
    """Where a caption says "Left:" or "(right)" of panels, a phone, on which they stand below each
    other, says "Above:" or "(below)"."""

    default_priority = 5
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        for caption in self.document.findall(nodes.caption):
            for text in list(caption.findall(nodes.Text)):
                words = [word for word in SIDES.split(text) if word]
                if len(words) > 1:
                    text.parent.replace(text, [made for word in words for made in _said(word)])


def _said(word: str) -> list[nodes.Node]:
    if word not in ON_A_PHONE:
        return [nodes.Text(word)]
    return [
        nodes.inline("", word, classes=["tp-wide-word"]),
        nodes.inline("", ON_A_PHONE[word], classes=["tp-narrow-word"]),
    ]


def warn_missing_alt(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for image in doctree.findall(nodes.image):
        if not image.get("alt", "").strip():
            logger.warning(NO_ALT, location=image, type="alt")


def warn_unmentioned(app: Sphinx, doctree: nodes.document) -> None:
    """A figure with a name has a number, and a sentence of its page leads to it by that number."""
    links = doctree.findall(lambda n: isinstance(n, pending_xref) and n["reftype"] == "numref")
    mentioned = {link["reftarget"] for link in links}
    for figure in doctree.findall(nodes.figure):
        if figure["names"] and not mentioned & set(figure["names"]):
            name = figure["names"][0]
            said = "no sentence of this page speaks of the figure %s: write {numref}`%s` in one"
            logger.warning(said, name, name, location=figure, type="figure")


def warn_traceback(app: Sphinx, doctree: nodes.document) -> None:
    """What fails while it is shown (a figure, a table) stops no cell, but stands on the page."""
    for block in doctree.findall(nodes.literal_block):
        if "traceback" in block["classes"]:
            said = block.astext().strip().rpartition("\n")[2]
            logger.warning("a cell's output is a traceback: %s", said, location=block, type="cell")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_post_transform(InlineFigures)
    app.add_post_transform(SidesOfPanels)
    app.connect("doctree-resolved", warn_missing_alt, priority=900)
    app.connect("doctree-read", warn_traceback)
    app.connect("doctree-read", warn_unmentioned)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
