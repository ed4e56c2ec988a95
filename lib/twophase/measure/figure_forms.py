"""A figure in two forms: as it was drawn, and narrow, for a phone: panels below each other, legends
below their panels, no text too small. Both travel in one SVG; the book shows the one that fits.

The narrow form is a copy of the same artists, so it cannot say anything else.
"""

from __future__ import annotations

import copy
import io
import re
import textwrap
from base64 import b64encode
from typing import TYPE_CHECKING, Any, cast

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.legend import Legend
from matplotlib.text import Annotation, Text
from matplotlib.ticker import LogFormatterMathtext, LogFormatterSciNotation

from .tables import si

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NARROW = 3.4  # inches: 326 pixels
SMALLEST = 9.35  # points: over 12 pixels, of which a phone may leave 11, and 7 points on paper
PAGE = 6.9  # inches: what a page has room for; a wider figure is shown smaller
PANEL = 2.7  # inches: the height of a panel, without its legend
ENTRY = 0.2  # inches: the height of a line of a legend
MARK = "twophase-narrow"  # the id of the metadata that holds the narrow form


def svg_of(fig: Figure) -> str:
    """The figure as SVG, its texts as texts."""
    made = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none"}):
        fig.savefig(made, format="svg", bbox_inches="tight")
    return made.getvalue()


def both_forms(fig: Figure) -> str:
    """The figure as SVG, with its narrow form inside as metadata."""
    shrunk = max(1.0, float(fig.get_size_inches()[0]) / PAGE)
    plain = write_powers_out(_copied(fig))
    wide = svg_of(raise_small_texts(plain, 8.8 * shrunk))  # 11 pixels as shown
    narrow = svg_of(narrowed(fig))
    inside = f'<metadata id="{MARK}">{b64encode(narrow.encode()).decode()}</metadata>'
    return wide[: wide.rindex("</svg>")] + inside + "</svg>\n"


def raise_small_texts(fig: Figure, points: float = SMALLEST) -> Figure:
    """Make no text of the figure smaller than so many points; returns it."""
    points = max(points, SMALLEST)
    for text in cast("list[Text]", fig.findobj(Text)):
        if float(text.get_fontsize()) < points:
            text.set_fontsize(points)
    return fig


class PlainPowers(LogFormatterSciNotation):
    """Labels the same ticks of a logarithmic axis, but writes 1 M where others write 10 to the 6th,
    and 1e-6 for the -6th: an exponent is smaller than any text may be."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        if not super().__call__(x, pos):
            return ""
        digits, power = f"{x:.0e}".split("e")
        return f"{digits}e{int(power)}" if int(power) < -3 else si(x)


def write_powers_out(fig: Figure) -> Figure:
    """Let no tick of the figure have an exponent; returns it."""
    for ax in fig.axes:
        for axis in (ax.xaxis, ax.yaxis):
            if isinstance(axis.get_major_formatter(), LogFormatterMathtext):
                axis.set_major_formatter(PlainPowers())
            if isinstance(axis.get_minor_formatter(), LogFormatterMathtext):
                axis.set_minor_formatter(PlainPowers())
    return fig


def narrowed(fig: Figure) -> Figure:
    """A copy of a figure, one column wide."""
    across, high = map(float, fig.get_size_inches())
    fig = write_powers_out(raise_small_texts(_copied(fig)))
    axes = [ax for ax in fig.axes if ax.get_subplotspec() is not None]
    rows = fig.add_gridspec(len(axes), 1)
    for number, ax in enumerate(axes):
        ax.set_subplotspec(rows[number, 0])
        ax.tick_params(labelleft=True, labelbottom=True)  # hidden where panels share an axis
        _break_texts(ax)
    lines = _put_legends_below(fig)
    alone = high if high > across else min(high, 4.2)  # one drawn tall needs its height
    panel = PANEL if len(axes) > 1 else alone
    fig.set_size_inches(NARROW, panel * len(axes) + ENTRY * lines)
    _thin_labels(fig)
    _part_names(fig)
    return fig


def _copied(fig: Figure) -> Figure:
    """A figure of its own, of which pyplot knows nothing."""
    made = copy.deepcopy(fig)
    plt.close(made)
    return made


def _break_texts(ax: Axes) -> None:
    """Title and labels in lines that fit."""
    for text in (ax.title, cast(Any, ax)._left_title, cast(Any, ax)._right_title, ax.xaxis.label):
        text.set_text(_in_lines(text.get_text(), 36))
    ax.yaxis.label.set_text(_in_lines(ax.yaxis.label.get_text(), 34))


def _in_lines(text: str, width: int) -> str:
    """The text in lines of so many characters; a unit in brackets stays in one."""
    whole = re.sub(r"\[[^]]*\]", lambda unit: unit[0].replace(" ", "\0"), text)
    return textwrap.fill(whole, width).replace("\0", " ")


def _thin_labels(fig: Figure) -> None:
    """Hide the labels of ticks that would touch the one before."""
    fig.draw_without_rendering()
    for ax in fig.axes:
        end = -float("inf")
        for text in ax.get_xticklabels():
            box = text.get_window_extent()
            if not text.get_text() or box.x1 < ax.bbox.x0 or box.x0 > ax.bbox.x1:
                continue
            if box.x0 < end:
                text.set_visible(False)
            else:
                end = float(box.x1) + float(text.get_fontsize()) / 3


def _part_names(fig: Figure) -> None:
    """Move names of points down that would stand on others: there is less room between points."""
    for ax in fig.axes:
        names = [
            t for t in ax.texts if isinstance(t, Annotation) and t.anncoords == "offset points"
        ]
        placed: list[Any] = []
        for name in sorted(names, key=lambda t: -t.get_window_extent().y0):
            box = name.get_window_extent()
            for other in placed:
                if box.overlaps(other):
                    down = box.y1 - other.y0 + 1
                    name.xyann = (name.xyann[0], name.xyann[1] - down * 72 / fig.dpi)
                    box = box.translated(0, -down)
            placed.append(box)


def _put_legends_below(fig: Figure) -> int:
    """Make one legend of all, below the figure; how many lines it has. Where panels have legends
    that differ, an entry says of which panel it is."""
    found = [(legend, _entries(legend)) for legend in cast("list[Legend]", fig.findobj(Legend))]
    shared = set.intersection(*(set(entries) for _, entries in found)) if found else set()
    merged: dict[str, Any] = {}
    for legend, entries in found:
        title = "" if legend.axes is None else legend.axes.get_title(loc="left")
        for label, handle in entries.items():
            alone = len(found) == 1 or label in shared or not title
            merged[label if alone else f"{title}: {label}"] = handle
        if legend in fig.legends:  # of the figure: its own way out leads to the figure copied from
            fig.legends.remove(legend)
        else:
            legend.remove()
    if not merged:
        return 0
    said = [_in_lines(label, 42) for label in merged]
    fig.legend(list(merged.values()), said, loc="outside lower left", fontsize=SMALLEST)
    return sum(label.count("\n") + 1 for label in said)


def _entries(legend: Legend) -> dict[str, Any]:
    """What a legend lists: label and what is drawn for it, the artist itself where it is known."""
    labels = [text.get_text() for text in legend.get_texts()]
    entries = dict(zip(labels, legend.legend_handles, strict=True))
    if legend.axes is not None:
        handles, names = legend.axes.get_legend_handles_labels()
        entries |= {n: h for n, h in zip(names, handles, strict=True) if n in entries}
    return entries
