"""``read_spec`` turns the YAML of a ``{play}`` box into a ``Play``. Each mistake is a ``PlayError``
of one sentence that says where."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy
from book_play_formula import (
    PlayError,
    call,
    javascript,
    read_formula,
    resolve,
    symbol,
    take,
)
from book_play_inputs import Input, read_input
from book_play_plot import Axis, Output, Plot, read_axis, read_plot

KEYS = ("title", "inputs", "given", "outputs", "room", "plot", "caption")


@dataclass(frozen=True)
class Room:
    """What a state needs, and what there is: two outputs of one unit."""

    needs: str
    has: str


@dataclass(frozen=True)
class Play:
    title: str
    caption: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    room: Room | None
    plot: Plot | None


def read_spec(spec: Mapping[str, Any]) -> Play:
    """The box of this YAML mapping."""
    if not isinstance(spec, Mapping):
        raise PlayError("a play box holds YAML: title, inputs, outputs, plot, caption")
    take(spec, set(KEYS), "a play box")
    for key in ("title", "inputs", "outputs"):
        if not spec.get(key):
            raise PlayError(f"{key!r} is missing")
    inputs = tuple(read_input(name, dict(entry or {})) for name, entry in spec["inputs"].items())
    names: dict[str, Any] = {
        name: symbol(name, positive) for item in inputs for name, positive in item.symbols.items()
    }
    known = set(names)
    drawn = dict(spec.get("plot") or {})
    axis = read_axis(drawn.get("x"), inputs, drawn.get("x_scale")) if drawn else None
    if axis is not None and axis.name not in names:
        names[axis.name] = symbol(axis.name, axis.low > 0)
    for name, entry in (spec.get("given") or {}).items():
        names[name] = read_given(name, entry, names)
    outputs = {}
    for name, entry in spec["outputs"].items():
        outputs[name] = read_output(name, dict(entry or {}), names)
        names[name] = outputs[name].expr
    plot = read_plot(drawn, axis, names, inputs, outputs) if axis is not None else None
    room = read_room(spec["room"], outputs) if "room" in spec else None
    for output in outputs.values():
        _check_known(output, known, axis, plot)
        if output.needs_room and room is None:
            raise PlayError(f"output {output.name!r} needs room, and the box says nothing of it")
    caption = str(spec.get("caption", ""))
    return Play(str(spec["title"]), caption, inputs, tuple(outputs.values()), room, plot)


def _check_known(output: Output, known: set[str], axis: Axis | None, plot: Plot | None) -> None:
    """Formulas use inputs only; hidden curves use the name of the axis as well."""
    if axis is not None and plot is not None and output.name in plot.curves and not output.show:
        known = known | {axis.name}
    strange = {found.name for found in output.expr.free_symbols} - known
    if strange:
        raise PlayError(f"output {output.name!r} needs {sorted(strange)[0]!r}, which is no input")


def read_room(entry: Mapping[str, Any], outputs: Mapping[str, Output]) -> Room:
    """The two outputs that decide whether a state fits."""
    take(entry, {"needs", "has"}, "room")
    for end in ("needs", "has"):
        if entry.get(end) not in outputs:
            raise PlayError(f"room: {end} names {entry.get(end)!r}, which is no output")
    return Room(entry["needs"], entry["has"])


def read_given(name: str, entry: Any, names: Mapping[str, Any]) -> Any:
    """A fixed number, an object by its dotted name, or ``{call: dotted.name, args: {...}}``."""
    if isinstance(entry, Mapping):
        where = f"given {name!r}"
        take(entry, {"call", "args", "attr"}, where)
        return call(str(entry["call"]), entry.get("args") or {}, names, entry.get("attr"), where)
    if isinstance(entry, str):
        return resolve(entry)
    return entry


def read_output(name: str, entry: dict[str, Any], names: Mapping[str, Any]) -> Output:
    """A number of the box: a function of the package, or arithmetic on what is there."""
    where = f"output {name!r}"
    shown = {"label", "unit", "show", "digits", "says", "needs_room"}
    take(entry, {"expr", "args", "attr", "formula", "scale", *shown}, where)
    if ("expr" in entry) == ("formula" in entry):
        raise PlayError(
            f"{where} needs either expr (a function of the package) or formula (arithmetic on other"
            " outputs)"
        )
    if "expr" in entry:
        value = call(str(entry["expr"]), entry.get("args") or {}, names, entry.get("attr"), where)
    else:
        value = read_formula(entry["formula"], names, where)
    try:
        expr = sympy.sympify(value)
    except (sympy.SympifyError, TypeError) as error:
        raise PlayError(f"{where} is not a number but {type(value).__name__}") from error
    expr = expr / sympy.sympify(entry.get("scale", 1))
    if not isinstance(expr, sympy.Expr):
        raise PlayError(f"{where} is not a number but {type(value).__name__}")
    javascript(expr)
    return Output(
        name,
        str(entry.get("label", name)),
        str(entry.get("unit", "")),
        expr,
        bool(entry.get("show", True)),
        int(entry.get("digits", 3)),
        tuple(entry.get("says", ())),
        bool(entry.get("needs_room", False)),
    )
