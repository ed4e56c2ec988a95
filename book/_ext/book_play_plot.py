"""The first state of a ``{play}`` box, drawn when the book is built. book/_static/play.js redraws
it with the same arithmetic; tests/test_book_play.py holds the two together.
"""

import html
import math
from collections.abc import Mapping

from book_play_formula import Play, Plot, number

PREFIXED = {"B", "s", "FLOP", "B/s", "FLOP/s", "B/token", "FLOP/token"}
PREFIXES = [
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
    (1e-9, "n"),
]
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LEFT, RIGHT, TOP, BOTTOM = 68, 18, 14, 46
WIDTH, HEIGHT = 640, 340
SAMPLES = 121
NARROWEST = 44  # pixels between two labels of the lower axis


def significant(value: float, digits: int) -> str:
    """The number with this many significant digits, no exponent and no trailing zeros."""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def readable(value: float, unit: str = "", digits: int = 3) -> str:
    """The number with its unit: 8.59 GB, 2.5 ms, 131,072 tokens, 1.2×10¹³."""
    if not math.isfinite(value):
        return "none"
    if unit in PREFIXED:
        size = abs(value) * (1 + 5e-4)
        for factor, prefix in PREFIXES:
            if (
                size >= factor
                and not (unit == "s" and factor > 1)
                and not (unit != "s" and factor < 1)
            ):
                return f"{significant(value / factor, digits)} {prefix}{unit}"
        return f"{significant(value, digits)} {unit}"
    after = unit if unit in ("", "%") else f" {unit}"
    if value != 0 and (abs(value) >= 1e7 or abs(value) < 1e-3):
        exponent = math.floor(math.log10(abs(value)))
        power = f"×10{str(exponent).translate(SUPERSCRIPT)}"
        return f"{significant(value / 10**exponent, digits)}{power}{after}"
    if abs(value) >= 1000:
        return f"{math.floor(value + 0.5):,}{after}"
    return f"{significant(value, digits)}{after}"


def ticks(low: float, high: float, log: bool) -> list[float]:
    """Round numbers within the range: 1, 2 and 5 times a power of ten, or the powers alone over
    three decades or more."""
    if log:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        decades = math.log10(high / low)
        steps = [1, 2, 5] if decades < 3 else [1]
        skip = max(1, math.ceil(decades / 7))
        every = [
            step * 10.0**power
            for power in range(first, last + 1)
            for step in steps
            if (power - first) % skip == 0
        ]
        return [tick for tick in every if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    start = math.ceil(low / step - 1e-9)
    return [index * step for index in range(start, math.floor(high / step + 1e-9) + 1)]


def span(
    values: list[float], log: bool, low: float | None, high: float | None
) -> tuple[float, float]:
    """The range of the upright axis: the author's bounds, else what the curves take."""
    finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)] or [1.0]
    bottom = low if low is not None else (min(finite) if log else min(0.0, *finite, 0.0))
    top = high if high is not None else max(finite) * (1.15 if log else 1.05)
    return bottom, top if top > bottom else bottom + 1


def sample_x(plot: Plot, low: float, high: float) -> list[float]:
    """Evenly spread positions between the slider's ends."""
    if plot.log_x:
        return [low * (high / low) ** (index / (SAMPLES - 1)) for index in range(SAMPLES)]
    return [low + (high - low) * index / (SAMPLES - 1) for index in range(SAMPLES)]


def place(value: float, low: float, high: float, log: bool, start: float, end: float) -> float:
    share = math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)
    return start + (end - start) * share


def draw(play: Play, state: Mapping[str, float], width: int = WIDTH) -> str:
    """The inside of the plot's <svg>: axes with units, curves, marks, the present state."""
    plot = play.plot
    assert plot is not None
    slider = next(item for item in play.inputs if item.name == plot.x)
    formulas = {output.name: output for output in play.outputs}
    xs = sample_x(plot, slider.low, slider.high)
    curves = [
        [number(formulas[name].expr, {**state, plot.x: x}) for x in xs] for name in plot.curves
    ]
    low, high = span(
        [value for curve in curves for value in curve], plot.log_y, plot.low, plot.high
    )
    right, bottom = width - RIGHT, HEIGHT - BOTTOM

    def x_at(value: float) -> float:
        return place(value, slider.low, slider.high, plot.log_x, LEFT, right)

    def y_at(value: float) -> float:
        return place(value, low, high, plot.log_y, bottom, TOP)

    parts = [
        f'<rect class="tp-frame" x="{LEFT}" y="{TOP}" width="{right - LEFT}"'
        f' height="{bottom - TOP}"/>'
    ]
    for tick in ticks(low, high, plot.log_y):
        y = f"{y_at(tick):.1f}"
        parts.append(f'<line class="tp-grid" x1="{LEFT}" x2="{right}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<text class="tp-tick" x="{LEFT - 8}" y="{y}" dy="4"'
            f' text-anchor="end">{readable(tick, plot.unit)}</text>'
        )
    last_x = -math.inf
    for tick in ticks(slider.low, slider.high, plot.log_x):
        x = f"{x_at(tick):.1f}"
        parts.append(f'<line class="tp-grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}"/>')
        if x_at(tick) - last_x < NARROWEST:
            continue
        last_x = x_at(tick)
        text = readable(tick, slider.unit if slider.unit in PREFIXED else "")
        parts.append(
            f'<text class="tp-tick" x="{x}" y="{bottom + 18}" text-anchor="middle">{text}</text>'
        )
    unit = f" ({slider.unit})" if slider.unit and slider.unit not in PREFIXED else ""
    parts.append(
        f'<text class="tp-axis" x="{(LEFT + right) / 2:.1f}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{html.escape(slider.label + unit)}</text>"
    )
    for mark in plot.marks:
        value = number(mark.expr, state)
        edges = (slider.low, slider.high) if mark.axis == "x" else (low, high)
        if edges[0] <= value <= edges[1]:
            parts.append(
                _mark(
                    mark.axis,
                    html.escape(mark.label),
                    x_at(value) if mark.axis == "x" else y_at(value),
                    right,
                    bottom,
                )
            )
    for index, curve in enumerate(curves):
        parts.append(
            f'<path class="tp-curve tp-c{index}"'
            f' d="{path(xs, curve, x_at, y_at, low, high, plot.log_y)}"/>'
        )
    for index, name in enumerate(plot.curves):
        value = number(formulas[name].expr, state)
        if math.isfinite(value) and low <= value <= high:
            parts.append(
                f'<circle class="tp-now tp-c{index}" cx="{x_at(state[plot.x]):.1f}"'
                f' cy="{y_at(value):.1f}" r="5"/>'
            )
    return "".join(parts)


def _mark(axis: str, label: str, at: float, right: float, bottom: float) -> str:
    if axis == "x":
        side, dx = ("end", -6) if at > (LEFT + right) / 2 else ("start", 6)
        return (
            f'<line class="tp-mark" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{bottom}"/><text'
            f' class="tp-mark-label" x="{at + dx:.1f}" y="{TOP + 14}"'
            f' text-anchor="{side}">{label}</text>'
        )
    return (
        f'<line class="tp-mark" x1="{LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/><text'
        f' class="tp-mark-label" x="{right - 6}" y="{at - 6:.1f}" text-anchor="end">{label}</text>'
    )


def path(xs: list[float], ys: list[float], x_at, y_at, low: float, high: float, log: bool) -> str:  # type: ignore[no-untyped-def]
    """The curve as a path; it is cut where it leaves the frame by more than its height, and where
    it has no number."""
    pieces = []
    pen_up = True
    for x, y in zip(xs, ys, strict=True):
        if not math.isfinite(y) or (log and y <= 0) or y > high or y < low:
            pen_up = True
            continue
        pieces.append(f"{'M' if pen_up else 'L'}{x_at(x):.1f} {y_at(y):.1f}")
        pen_up = False
    return "".join(pieces)


def describe(play: Play, state: Mapping[str, float]) -> str:
    """What the plot shows, in words, for who does not see it."""
    plot = play.plot
    assert plot is not None
    slider = next(item for item in play.inputs if item.name == plot.x)
    formulas = {output.name: output for output in play.outputs}
    curves = [
        f"{formulas[name].label}"
        f" {readable(number(formulas[name].expr, state), plot.unit, formulas[name].digits)}"
        for name in plot.curves
    ]
    marks = [
        f"{mark.label} at"
        f" {readable(number(mark.expr, state), slider.unit if mark.axis == 'x' else plot.unit)}"
        for mark in plot.marks
    ]
    return (
        f"Line plot over {slider.label}, from {readable(slider.low, slider.unit)} to"
        f" {readable(slider.high, slider.unit)}. At {readable(state[plot.x], slider.unit)}:"
        f" {', '.join(curves + marks)}."
    )
