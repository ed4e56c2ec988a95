"""The states that something drawn can be in: a closed list, each with a fill, a pattern and a word.

Two states never differ by color alone: paper and color-blind readers tell them apart by pattern,
outline or darkness.
"""

from dataclasses import dataclass

# The site's variables; in a notebook, which has none of them, JupyterLab's, or these colors.
VARIABLES = {
    "ink": "var(--tp-ink, var(--jp-ui-font-color1, #1d2429))",
    "quiet": "var(--tp-quiet, var(--jp-ui-font-color2, #565e63))",
    "paper": "var(--tp-paper, var(--jp-layout-color1, #fcfbf8))",
    "prefill": "var(--tp-prefill, #a8430e)",
    "decode": "var(--tp-decode, #0b666f)",
    "third": "var(--tp-third, #5b4b9a)",
    "fourth": "var(--tp-fourth, #8a6a00)",
    "fifth": "var(--tp-fifth, #6d6d6d)",
}
PATTERNS = ("plain", "diagonal", "cross", "dots", "upright", "frame")


@dataclass(frozen=True)
class State:
    """How one state looks. `hue` is one of `VARIABLES`; `share` of it is mixed into the paper."""

    word: str  # what the key says, unless the drawing knows better
    hue: str
    share: int  # percent
    pattern: str = "plain"
    dashed: bool = False
    label: str = "ink"  # the color of text on it

    @property
    def fill(self) -> str:
        """The fill as a CSS color."""
        return mixed(self.hue, self.share)

    @property
    def trace(self) -> str:
        """The lines of the pattern: darker than the fill, pale enough to read text over."""
        if self.pattern == "frame":
            return VARIABLES["paper"]
        return mixed(self.hue, min(100, self.share + 26))


def mixed(hue: str, share: int) -> str:
    """A CSS color: `share` percent of a variable in the paper's color."""
    if share >= 100:
        return VARIABLES[hue]
    if share <= 0:
        return VARIABLES["paper"]
    return f"color-mix(in srgb, {VARIABLES[hue]} {share}%, {VARIABLES['paper']})"


STATES = {
    "empty": State("empty", "quiet", 0, dashed=True),
    "stored": State("stored", "decode", 22),
    "new": State("new", "prefill", 100, label="paper"),
    "read": State("read", "decode", 100, "frame", label="paper"),
    "recomputed": State("computed again", "prefill", 14, "diagonal"),
    "masked": State("masked", "fifth", 12, "cross"),
    "reserved": State("reserved", "fourth", 12, "dots", dashed=True),
    "fixed": State("weights", "third", 14, "upright"),
}
