"""Formulas are MathML when the page is written: nothing has to run in the browser to show them.

docutils turns TeX into MathML and refuses what it does not know; here its result gets the details
that readers of TeX expect. `tools/math_font.py` made the font, which holds CHARACTERS alone.
"""

import re
import unicodedata
from itertools import zip_longest
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from book_math_core import beyond_core
from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.locale import _
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html import HTML5Translator

logger = logging.getLogger(__name__)
Element = ElementTree.Element
FONT = Path(__file__).parent.parent / "_static" / "math.woff2"
# Letters, digits and signs, a line for each of Unicode's blocks.
CHARACTERS = {
    *map(chr, range(0x20, 0x7F)),  # ASCII
    *"\u00a0¬±×÷·†‡…′″‖⟨⟩⌈⌉⌊⌋⏞⏟⏜⏝\u2061\u2062\u2063\u2064\u200b",
    *map(chr, (*range(0x391, 0x3AA), *range(0x3B1, 0x3CA), 0x3D1, 0x3D5, 0x3F1, 0x3F5)),  # Greek
    *"←↑→↓↔↦⇐⇒⇔⟵⟶⟷⟸⟹⟺",
    *"∀∂∃∅∇∈∉∋∏∑−∓∕∖∗∘∙√∝∞∠∣∥∧∨∩∪∫∼≃≅≈≠≡≤≥≪≫≺≻⊂⊃⊆⊇⊕⊗⊙⊤⊥⋅⋆⋮⋯⋱⪯⪰",
    *"ℎℓℝℕℤℚℂ𝔼ℙ𝟙ℒℋ𝒩𝒪𝒟𝒱",
    *map(chr, range(0x1D434, 0x1D468)),  # italic
    *map(chr, (*range(0x1D400, 0x1D434), *range(0x1D7CE, 0x1D7D8))),  # bold
    *map(chr, (*range(0x1D6FC, 0x1D71C), *range(0x1D6E2, 0x1D6FC))),  # italic Greek
    *"¯ˉˆˇ˜˙¨µ\u0302\u0303\u0304\u0307\u20d7",
} - {chr(0x1D455), chr(0x3A2)}  # an italic h is ℎ; no letter stands there
ACCENTS = {"ˉ", "¯", "ˆ", "^", "˜", "~", "˙", "→"}
FUNCTIONS = {"max", "min", "argmax", "argmin", "lim", "sup", "inf", "det", "gcd", "Pr"}
BETWEEN = set("+−=≈<>≤≥⋅×")
LOGARITHMS = {"ln", "log", "exp", "sin", "cos", "tanh", "tr"}
# What a browser need not know; the style sheet says it.
BEYOND_CORE = {"columnalign", "columnspacing", "rowspacing"}
# What docutils calls otherwise.
SPELLINGS = {
    r"\\\\\s*\[[^\]]*\]": r"\\\\",  # the room between two lines is the style sheet's
    r"\\dots(?![a-zA-Z])": r"\\ldots",
    r"\\iff(?![a-zA-Z])": r"\\;\\Longleftrightarrow\\;",
    r"(?<=\{)gathered(?=\})": "aligned",
    r"(?<=\d)\{,\}(?=\d)": r"\\text{,}",
    r"(\\[td]?frac)\s*(\d)\s*(\d)": r"\1{\2}{\3}",
}
ENVIRONMENT = re.compile(
    r"\s*\\begin\{(align|equation|gather|multline)(\*?)\}(.*)\\end\{\1\2\}\s*", re.S
)


def mathml(tex: str, block: bool = False) -> str:
    """The formula as one `<math>`. MathError for what is not TeX, more than docutils knows, or
    beyond MathML Core, which all browsers show."""
    for theirs, docutils_own in SPELLINGS.items():
        tex = re.sub(theirs, docutils_own, tex)
    if found := ENVIRONMENT.fullmatch(tex):
        tex = found[3]
    text = tex2mathml(tex.strip(), as_block=block).replace(
        ' xmlns="http://www.w3.org/1998/Math/MathML"', ""
    )
    text = text.replace("&ApplyFunction;", "\u2061")
    root = ElementTree.fromstring(re.sub(r">\s*\n\s*<", "><", text))
    for parent in list(root.iter()):
        if parent.tag in ("mtd", "mtr") and parent.find(parent.tag) is not None:
            raise MathError(
                "a bracket opens in one cell and closes in another: close it in its own"
            )
        _refine(parent)
    if beyond := beyond_core(root):
        raise MathError(f"MathML Core has no {beyond}: write it otherwise")
    foreign = set("".join(root.itertext())) - CHARACTERS
    if foreign:
        said = ", ".join(f"{c} ({unicodedata.name(c, 'without a name')})" for c in sorted(foreign))
        raise MathError(
            f"the font of formulas has no {said}: add it in book_math.CHARACTERS, and make it anew"
        )
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def _refine(parent: Element) -> None:
    """The children of one element as TeX would set them."""
    if parent.tag == "msub" and parent[0].tag == "munder" and parent[0][-1].text == "⏟":
        parent.tag = "munder"  # what stands at a brace stands below it
    if parent.tag == "msup" and parent[0].tag == "mover" and parent[0][-1].text == "⏞":
        parent.tag = "mover"
    if parent.tag == "munderover" and parent[2].text in ACCENTS:  # an index beside its letter
        letter, index, accent = list(parent)
        over = Element("mover")
        over.extend([letter, accent])
        parent.tag = "msub"
        parent[:] = [over, index]
    if parent.get("class") == "ams-align":
        parent.set("displaystyle", "true")
    for name in BEYOND_CORE & set(parent.attrib):
        del parent.attrib[name]
    _join_thousands(parent)
    children = list(parent)
    for place, (child, after) in enumerate(zip_longest(children, children[1:])):
        core = _core(child)
        if core.text == "'":
            core.text = "′"
        if core.text == "/":  # no room beside it, as in TeX
            core.set("lspace", "0")
            core.set("rspace", "0")
        if core.tag == "mo" and core.text in FUNCTIONS:
            opens = after is None or after.tag in ("mrow", "mspace") or after.text == "("
            apart = place > 0 and _ends(children[place - 1])
            core.set("lspace", "0.1667em" if apart else "0")
            core.set("rspace", "0" if opens else "0.1667em")
        if core.text in BETWEEN and place and children[place - 1].tag == "mtext":
            core.set("form", "infix")  # words count as room, after which a sign would be a prefix
        if core.text in ("+", "−") and place and children[place - 1].text in ("(", "[", "{"):
            core.set("form", "prefix")
        if core.tag == "mo" and core.text in ("|", "‖"):  # no room, and as high as its letters
            core.set("lspace", "0")
            core.set("rspace", "0")
            if parent.tag != "mrow" or parent[0].text != "‖" or parent[0].get("class"):
                core.set("stretchy", core.get("stretchy", "false" if core.text == "‖" else "true"))
    if parent.tag == "mtd" and len(children) > 1 and children[0].text == "+":
        children[0].set("form", "infix")  # a line goes on here
    _room_for_logarithms(parent)
    _words_are_letters(parent)


def _words_are_letters(parent: Element) -> None:
    """`memory - weights`: to a browser words are room, and a sign with nothing but room beside it
    gets none of its own."""
    words = [child for child in parent if child.tag == "mtext"]
    signs = [child for child in parent if child.tag == "mo"]
    room = [child for child in parent if child.tag in ("mtext", "mspace", "mrow")]
    empty = not any(len(child) for child in room)
    if words and len(signs) == 1 and empty and len(room) + 1 == len(parent):
        words[0].tag = "mi"
        words[0].set("mathvariant", "normal")


def _ends(element: Element) -> bool:
    """Whether a factor ends here, beside which a function has room."""
    core = _core(element)
    return core.tag not in ("mo", "mspace") or core.text in (")", "]")


def _room_for_logarithms(parent: Element) -> None:
    """`t \\ln x`: a thin space on each side, where a letter or number stands."""
    children = list(parent)
    for place, child in enumerate(children):
        if _core(child).text not in LOGARITHMS:
            continue
        if place and _ends(children[place - 1]):
            parent.insert(list(parent).index(child), Element("mspace", width="0.1667em"))
        if place + 2 < len(children) and children[place + 1].text == "\u2061":
            after = children[place + 2]
            if after.tag not in ("mo", "mrow", "mspace"):
                parent.insert(list(parent).index(after), Element("mspace", width="0.1667em"))


def _core(element: Element) -> Element:
    """What carries scripts or limits: the operator of `max_i`."""
    while element.tag in ("munder", "mover", "munderover", "msub", "msup", "msubsup") and len(
        element
    ):
        element = element[0]
    return element


def _join_thousands(parent: Element) -> None:
    """`500{,}500` is one number."""
    children = list(parent)
    for left, comma, right in zip(children, children[1:], children[2:], strict=False):
        if (left.tag, comma.tag, right.tag, comma.text) == ("mn", "mtext", "mn", ","):
            right.text = f"{left.text},{right.text}"
            parent.remove(left)
            parent.remove(comma)


INLINE = re.compile(
    r'[(\[“]?<span class="math notranslate nohighlight">(?:(?!</span>).)*</span>[.,;:!?)\]”’…]*',
    re.S,
)


def glued(page: str) -> str:
    """The page's HTML with every formula on one line with the comma or bracket beside it."""
    return INLINE.sub(
        lambda m: m[0] if m[0][0] + m[0][-1] == "<>" else f'<span class="tp-glued">{m[0]}</span>',
        page,
    )


def glue(
    app: Sphinx,
    pagename: str,
    template: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    if "body" in context:
        context["body"] = glued(context["body"])


def _written(self: HTML5Translator, node: nodes.math | nodes.math_block, block: bool) -> str:
    parts = [part for part in node.astext().split("\n\n") if part.strip()]
    try:
        return mathml(r" \\ ".join(parts), block)
    except (MathError, ElementTree.ParseError) as error:
        logger.warning("this formula cannot be shown: %s", error, location=node, type="math")
        return f"<code>{self.encode(node.astext())}</code>"


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(self.starttag(node, "span", "", CLASS="math notranslate nohighlight"))
    self.body.append(_written(self, node, False) + "</span>")
    raise nodes.SkipNode


def visit_math_block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, _("Link to this equation"))
        self.body.append("</span>")
    self.body.append(_written(self, node, True) + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    app.connect("html-page-context", glue)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
