"""The plot of a ``{play}`` box as its author wrote it; play.js draws it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from book_play_formula import PlayError, as_float, read_formula, take
from book_play_inputs import Input


@dataclass(frozen=True)
class Output:
    """A number of the box. `says` are words for 0, 1, ..., `needs_room` takes the number away where
    the box's `room` is too small."""

    name: str
    label: str
    unit: str
    expr: sympy.Expr
    show: bool = True
    digits: int = 3
    says: tuple[str, ...] = ()
    needs_room: bool = False


@dataclass(frozen=True)
class Axis:
    """The lower axis: a slider's name and range, or a name of its own that only curves know."""

    name: str
    label: str
    unit: str
    low: float
    high: float
    log: bool


@dataclass(frozen=True)
class Mark:
    """A vertical line at x = an output or a number, or a horizontal one at y."""

    axis: str
    label: str
    expr: sympy.Expr


@dataclass(frozen=True)
class Dot:
    """A point at two outputs, which the reader drags: it moves the slider's value `drag`."""

    x: str
    y: str
    drag: str


@dataclass(frozen=True)
class Plot:
    axis: Axis
    curves: tuple[str, ...]
    log_y: bool
    y_label: str
    unit: str
    low: float | None
    high: float | None
    marks: tuple[Mark, ...]
    dot: Dot | None
    rows: str  # the input that says how many rows meet a tile of weights, or nothing


def read_axis(entry: Any, inputs: Sequence[Input], scale: str | None) -> Axis:
    """A slider by its name, or a mapping: name, label, unit, min, max, scale."""
    if isinstance(entry, Mapping):
        take(entry, {"name", "label", "unit", "min", "max", "scale"}, "plot: x")
        low, high = (as_float(entry.get(end), f"plot: x: {end}") for end in ("min", "max"))
        named = (str(entry.get(key, "")) for key in ("name", "label", "unit"))
        return Axis(*named, low, high, entry.get("scale") == "log")
    sliders = {item.name: item for item in inputs if not item.options}
    if entry not in sliders:
        raise PlayError(f"plot: x must be a slider, one of {', '.join(sliders)}")
    item = sliders[entry]
    log = item.log if scale is None else scale == "log"
    return Axis(item.name, item.label, item.unit, item.low, item.high, log)


def read_plot(
    entry: Mapping[str, Any],
    axis: Axis,
    names: Mapping[str, Any],
    inputs: Sequence[Input],
    outputs: Mapping[str, Output],
) -> Plot:
    """The plot over an axis. PlayError for a name that is none, or curves of different units."""
    allowed = {"x", "y", "x_scale", "y_scale", "y_label", "y_min", "y_max", "marks", "dot", "rows"}
    take(entry, allowed, "plot")
    curves = tuple(entry["y"] if isinstance(entry.get("y"), list) else [entry.get("y")])
    for curve in curves:
        if curve not in outputs:
            raise PlayError(f"plot: y names {curve!r}, which is no output")
    units = {outputs[curve].unit for curve in curves}
    if len(units) != 1:
        raise PlayError(
            f"plot: the curves share one axis and so one unit, got {', '.join(sorted(units))}"
        )
    bounds = [
        as_float(entry[key], f"plot: {key}") if key in entry else None for key in ("y_min", "y_max")
    ]
    label = str(entry.get("y_label", outputs[curves[0]].label if len(curves) == 1 else ""))
    sliders = {item.name for item in inputs if not item.options}
    rows = str(entry.get("rows", ""))
    if rows and rows not in sliders:
        raise PlayError(f"plot: rows names {rows!r}, which is no slider")
    return Plot(
        axis,
        curves,
        entry.get("y_scale", "linear") == "log",
        label,
        units.pop(),
        bounds[0],
        bounds[1],
        tuple(_mark(mark, names) for mark in entry.get("marks") or []),
        _dot(entry["dot"], sliders, outputs) if "dot" in entry else None,
        rows,
    )


def _mark(entry: Mapping[str, Any], names: Mapping[str, Any]) -> Mark:
    axis = "x" if "x" in entry else "y"
    take(entry, {axis, "label"}, "plot: mark")
    return Mark(axis, str(entry["label"]), read_formula(entry[axis], names, "plot: mark"))


def _dot(entry: Mapping[str, Any], sliders: set[str], outputs: Mapping[str, Output]) -> Dot:
    take(entry, {"x", "y", "drag"}, "plot: dot")
    x, y, drag = (str(entry.get(key)) for key in ("x", "y", "drag"))
    if x not in outputs or y not in outputs or drag not in sliders:
        raise PlayError("plot: dot stands at two outputs, x and y, and drags a slider")
    return Dot(x, y, drag)
