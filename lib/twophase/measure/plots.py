"""The course's figures: Okabe and Ito's colors, which color-blind readers can tell apart, and a
unit on every axis.

A notebook shows them on white. The book puts them into the page in its own colors, and on a phone
their narrow form (`figure_forms`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import matplotlib as mpl
import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from matplotlib_inline.backend_inline import set_matplotlib_formats

from twophase.theory.hardware import Hardware

from .figure_forms import both_forms
from .tables import binary, si

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, YELLOW, BLACK = "#56B4E9", "#CC79A7", "#F0E442", "#000000"
COLORS = (
    BLUE,
    VERMILION,
    GREEN,
    PURPLE,
    ORANGE,
    SKY,
    BLACK,
)  # yellow is too pale for a line on white
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK, GRID = "#222222", "#D9D9D9"

STYLE: dict[str, Any] = {
    "figure.figsize": (6.4, 3.8),
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.bbox": "tight",
    "figure.constrained_layout.use": True,
    "axes.facecolor": "white",
    "axes.prop_cycle": cycler(color=COLORS),
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "legend.frameon": False,
    "font.size": 10,
    "svg.fonttype": "path",
    "svg.hashsalt": "twophase",
}


def use_house_style() -> None:
    """Make every figure of this process a figure of the course; in a notebook, one that stays sharp
    at any size."""
    mpl.rcParams.update(cast(Any, STYLE))
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None:
        set_matplotlib_formats("svg")  # type: ignore[no-untyped-call]
        shell.display_formatter.formatters["image/svg+xml"].for_type(Figure, both_forms)


def figure(rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """`plt.subplots` in the house style: (figure, axes)."""
    use_house_style()
    if rows * columns > 1:
        options.setdefault("figsize", (3.6 * columns if columns > 1 else 6.4, 3.4 * rows))
    return plt.subplots(rows, columns, **options)


def label(ax: Axes, xlabel: str, ylabel: str, title: str = "") -> None:
    """Name both axes, units included. Raises ValueError if one has no name, or "[1]" for a unit."""
    if not xlabel.strip() or not ylabel.strip():
        raise ValueError(
            "Both axes need a label with its unit, such as 'context [tokens]' and 'time [s]'."
        )
    if "[1]" in xlabel + ylabel:
        raise ValueError("A count and a ratio have no unit: leave the [1] out of the label.")
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    if title:
        ax.set_title(title)


def unit_axis(ax: Axes, which: str, unit: str) -> None:
    """Write an axis' ticks with SI prefixes (`unit="s"`: 10 ms; `"B"`: 2 GB; `"tokens/s"`), or
    binary ones for `"GiB"`.

    `which` is `x` or `y`. Ticks carry the unit, so the label that is there loses its own.
    """
    if which not in ("x", "y"):
        raise ValueError(f"An axis is 'x' or 'y', not {which!r}.")

    def text(value: float, _: int) -> str:
        return binary(value) if unit == "GiB" else si(value, unit)

    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_formatter(FuncFormatter(text))
    if unit:
        axis.set_label_text(re.sub(r" \[[^\]]*\]$", "", axis.get_label_text()))


def line_and_points(
    ax: Axes,
    x: Sequence[float],
    predicted: Sequence[float],
    measured: Sequence[float],
    labels: tuple[str, str] = ("predicted", "measured"),
    *,
    xlabel: str,
    ylabel: str,
    series: int = 0,
    x_measured: Sequence[float] | None = None,
) -> None:
    """Predicted as a line, measured as points of the same color. `series` 0, 1, 2, ... picks color
    and marker.

    `x_measured` where the points lie elsewhere than the line's. Raises ValueError if lengths differ
    or an axis has no label.
    """
    where = x if x_measured is None else x_measured
    if len(x) != len(predicted) or len(where) != len(measured):
        raise ValueError(
            f"{len(x)} x and {len(predicted)} predicted; {len(where)} x and {len(measured)}"
            " measured: lengths differ."
        )
    color, marker = COLORS[series % len(COLORS)], MARKERS[series % len(MARKERS)]
    ax.plot(x, predicted, color=color, label=labels[0])
    ax.plot(
        where,
        measured,
        marker,
        color=color,
        markerfacecolor="white",
        markeredgewidth=1.6,
        label=labels[1],
    )
    label(ax, xlabel, ylabel)
    ax.legend()


def roofline(
    ax: Axes,
    hardware: Hardware,
    points: Mapping[str, tuple[float, float]] | None = None,
    *,
    dtype: str = "bf16",
    series: int = 0,
    limits: tuple[float, float] | None = None,
) -> None:
    """A machine's roofline in one format, and kernels on it: `points[name] = (FLOPs per byte,
    FLOP/s)`.

    Logarithmic axes; the ridge is marked and named. `limits` is the range of intensities. Raises
    ValueError for a point that is not positive or a format that the hardware has no figure for.
    """
    peak, bandwidth = hardware.peak_flops_per_s(dtype), hardware.hbm_bytes_per_s
    ridge = peak / bandwidth
    marks = dict(points or {})
    if any(value <= 0 for point in marks.values() for value in point):
        raise ValueError(
            "Points of a roofline need a positive intensity and positive FLOP/s: its axes are"
            " logarithmic."
        )
    reached = [intensity for intensity, _ in marks.values()]
    low, high = limits or (min([ridge / 30, *reached]) / 2, max([ridge * 30, *reached]) * 2)
    color = COLORS[series % len(COLORS)]
    corners = [low, *([ridge] if low < ridge < high else []), high]
    ax.loglog(
        corners,
        [min(peak, i * bandwidth) for i in corners],
        color=color,
        label=f"{hardware.name}, {dtype}",
    )
    ax.plot([ridge], [peak], "|", color=color, markersize=12)
    ax.annotate(
        f"ridge {si(ridge)} FLOP/B",
        (ridge, peak),
        xytext=(0, 10),
        textcoords="offset points",
        ha="center",
        fontsize=9,
    )
    for number, (name, (intensity, rate)) in enumerate(marks.items()):
        dot, shade = MARKERS[number % len(MARKERS)], COLORS[(number + 1) % len(COLORS)]
        ax.plot([intensity], [rate], linestyle="none", marker=dot, color=shade, label=name)
    ax.margins(y=0.15)
    label(ax, "arithmetic intensity [FLOP/B]", "attainable rate [FLOP/s]")
    unit_axis(ax, "y", "FLOP/s")
    ax.legend(fontsize=9)
