"""MathML Core, the part of MathML that every browser shows (https://www.w3.org/TR/mathml-core/):
the elements and attributes of it that formulas here may have."""

from xml.etree.ElementTree import Element

EVERYWHERE = {"class", "displaystyle", "scriptlevel"}
SIGN = {"form", "lspace", "rspace", "stretchy", "symmetric", "maxsize", "minsize"}
CORE: dict[str, set[str]] = {
    "math": {"display"},
    "mi": {"mathvariant"},  # normal: other letters are characters of their own
    "mn": set(),
    "mo": SIGN | {"largeop", "movablelimits"},
    "mtext": set(),
    "mspace": {"width"},
    "mrow": set(),
    "mfrac": {"linethickness"},
    "msqrt": set(),
    "mroot": set(),
    "msub": set(),
    "msup": set(),
    "msubsup": set(),
    "munder": {"accentunder"},
    "mover": {"accent"},
    "munderover": {"accent", "accentunder"},
    "mtable": set(),
    "mtr": set(),
    "mtd": set(),
}


def beyond_core(formula: Element) -> str:
    """The first tag of a formula that a browser may leave out, or an empty string."""
    for element in formula.iter():
        if element.tag not in CORE:
            return f"<{element.tag}>"
        for name, value in element.attrib.items():
            known = name in CORE[element.tag] | EVERYWHERE
            if not known or (name == "mathvariant" and value != "normal"):
                return f"<{element.tag} {name}={value}>"
    return ""
