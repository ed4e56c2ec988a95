"""From a function of the package to a formula of the page: the function is called with sympy
symbols and printed as JavaScript.

Nothing here knows Sphinx. ``read_spec`` turns the YAML of a ``{play}`` box into a ``Play``; every
mistake is a ``PlayError`` with one sentence that says where.
"""

import importlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import sympy
from sympy.printing.jscode import JavascriptCodePrinter

STEP = re.compile(r"\[([^\]]*)\]|\.(\w+)")


class PlayError(ValueError):
    """What is wrong with a ``{play}`` box, in one sentence."""


@dataclass(frozen=True)
class Input:
    """A slider (numbers) or a menu (options: label → numbers for one or more names)."""

    name: str
    label: str
    unit: str = ""
    low: float = 0.0
    high: float = 1.0
    value: float | str = 0.0
    step: float | None = None
    log: bool = False
    values: tuple[float, ...] = ()
    options: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Output:
    name: str
    label: str
    unit: str
    expr: sympy.Expr
    show: bool = True
    digits: int = 3


@dataclass(frozen=True)
class Mark:
    """A vertical line at x = an output or a number, or a horizontal one at y."""

    axis: str
    label: str
    expr: sympy.Expr


@dataclass(frozen=True)
class Plot:
    x: str
    curves: tuple[str, ...]
    log_x: bool
    log_y: bool
    y_label: str
    unit: str
    low: float | None
    high: float | None
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Play:
    title: str
    caption: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    plot: Plot | None

    def start(self) -> dict[str, float]:
        """The first state: every name the formulas need, with its number."""
        state: dict[str, float] = {}
        for item in self.inputs:
            state.update(
                item.options[str(item.value)] if item.options else {item.name: float(item.value)}
            )
        return state


def resolve(path: str) -> Any:
    """The object of a dotted name, keys in brackets: ``twophase.theory.catalog.HARDWARE[H100
    SXM].flops_per_s[bf16]``."""
    dotted, bracket, rest = path.partition("[")
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except (ModuleNotFoundError, ValueError):
            continue
        steps = [(None, name) for name in parts[cut:]] + STEP.findall(bracket + rest)
        for key, name in steps:
            try:
                found = getattr(found, name) if name else found[key]
            except (AttributeError, KeyError, TypeError):
                raise PlayError(f"{path!r}: there is no {name or key!r}") from None
        return found
    raise PlayError(f"{path!r} cannot be imported")


class _PageJavaScript(JavascriptCodePrinter):
    """Names are read from the state object ``v``; 10**9 and the like stay readable."""

    def _print_Symbol(self, expr: sympy.Symbol) -> str:
        return f"v.{expr.name}"

    def _print_Heaviside(self, expr: sympy.Expr) -> str:
        raise PlayError("Heaviside has no JavaScript here")


def javascript(expr: sympy.Expr) -> str:
    """The formula as a JavaScript expression of ``v``. Raises PlayError if it holds a function that
    JavaScript lacks."""
    code = str(_PageJavaScript().doprint(expr))
    if "Not supported" in code:
        raise PlayError(f"the formula {expr} uses a function that JavaScript does not have")
    return " ".join(code.split())


def number(expr: sympy.Expr, state: Mapping[str, float]) -> float:
    """The formula's number in this state, as the page computes it; nan where it has none."""
    names = sorted(state)
    compiled = _compiled(expr, tuple(names))
    try:
        value = compiled(*(state[name] for name in names))
    except (ArithmeticError, ValueError):
        return math.nan
    return float(value) if isinstance(value, (int, float)) else math.nan


@cache
def _compiled(expr: sympy.Expr, names: tuple[str, ...]) -> Callable[..., Any]:
    by_name = {symbol.name: symbol for symbol in expr.free_symbols}
    function: Callable[..., Any] = sympy.lambdify(
        [by_name.get(name, sympy.Symbol(name)) for name in names], expr, "math"
    )
    return function


def read_spec(spec: Mapping[str, Any]) -> Play:
    """The box of this YAML mapping."""
    if not isinstance(spec, Mapping):
        raise PlayError("a play box holds YAML: title, inputs, outputs, plot, caption")
    unknown = set(spec) - {"title", "inputs", "given", "outputs", "plot", "caption"}
    if unknown:
        raise PlayError(
            f"unknown key {sorted(unknown)[0]!r}; a play box has title, inputs, given, outputs,"
            " plot, caption"
        )
    for key in ("title", "inputs", "outputs"):
        if not spec.get(key):
            raise PlayError(f"{key!r} is missing")
    inputs = tuple(read_input(name, dict(entry or {})) for name, entry in spec["inputs"].items())
    names: dict[str, Any] = {}
    for item in inputs:
        for name in _symbols_of(item):
            positive = (
                item.low > 0
                if not item.options
                else all(numbers[name] > 0 for numbers in item.options.values())
            )
            names[name] = (
                sympy.Symbol(name, positive=True)
                if positive
                else sympy.Symbol(name, nonnegative=True)
            )
    for name, entry in (spec.get("given") or {}).items():
        names[name] = read_given(name, entry, names)
    outputs = []
    for name, entry in spec["outputs"].items():
        output = read_output(name, dict(entry or {}), names)
        names[name] = output.expr
        outputs.append(output)
    known = {symbol for item in inputs for symbol in _symbols_of(item)}
    for output in outputs:
        strange = {symbol.name for symbol in output.expr.free_symbols} - known
        if strange:
            raise PlayError(
                f"output {output.name!r} needs {sorted(strange)[0]!r}, which is no input"
            )
    plot = read_plot(dict(spec["plot"]), names, inputs, outputs) if spec.get("plot") else None
    return Play(str(spec["title"]), str(spec.get("caption", "")), inputs, tuple(outputs), plot)


def _symbols_of(item: Input) -> list[str]:
    return list(next(iter(item.options.values()))) if item.options else [item.name]


def _take(entry: dict[str, Any], allowed: set[str], where: str) -> None:
    unknown = set(entry) - allowed
    if unknown:
        raise PlayError(
            f"{where} has an unknown key {sorted(unknown)[0]!r}; it may have"
            f" {', '.join(sorted(allowed))}"
        )


def as_float(value: Any, where: str) -> float:
    """A number, or the dotted name of one."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            value = resolve(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise PlayError(f"{where} must be a number or the dotted name of one, got {value!r}")
    return float(value)


def read_input(name: str, entry: dict[str, Any]) -> Input:
    where = f"input {name!r}"
    _take(
        entry, {"label", "unit", "min", "max", "value", "step", "scale", "values", "options"}, where
    )
    if not name.isidentifier():
        raise PlayError(f"{where}: a name is letters, digits and underscores")
    label, unit = str(entry.get("label", name)), str(entry.get("unit", ""))
    if "options" in entry:
        options = {
            str(key): (
                {name: as_float(value, where)}
                if not isinstance(value, Mapping)
                else {str(inner): as_float(number, where) for inner, number in value.items()}
            )
            for key, value in entry["options"].items()
        }
        if len({tuple(numbers) for numbers in options.values()}) != 1:
            raise PlayError(f"{where}: every option must set the same names")
        value = str(entry.get("value", next(iter(options))))
        if value not in options:
            raise PlayError(f"{where} starts at {value!r}, which is none of its options")
        return Input(name, label, unit, value=value, options=options)
    values = tuple(as_float(value, where) for value in entry.get("values", ()))
    low = as_float(values[0] if values else entry.get("min"), f"{where}: min")
    high = as_float(values[-1] if values else entry.get("max"), f"{where}: max")
    value_number = as_float(entry.get("value"), f"{where}: value")
    log = entry.get("scale", "linear") == "log"
    if not low <= value_number <= high or low >= high:
        raise PlayError(
            f"{where} needs min < max and a value between them, got {low}, {high}, {value_number}"
        )
    if values and value_number not in values:
        raise PlayError(f"{where} starts at {value_number}, which is none of its values")
    if log and low <= 0:
        raise PlayError(f"{where}: a log scale starts above zero")
    step = as_float(entry["step"], where) if "step" in entry else None
    return Input(name, label, unit, low, high, value_number, step, log, values)


def read_given(name: str, entry: Any, names: Mapping[str, Any]) -> Any:
    """A fixed number, an object by its dotted name, or ``{call: dotted.name, args: {...}}``."""
    if isinstance(entry, Mapping):
        _take(dict(entry), {"call", "args", "attr"}, f"given {name!r}")
        return call(
            str(entry["call"]), entry.get("args") or {}, names, entry.get("attr"), f"given {name!r}"
        )
    if isinstance(entry, str):
        return resolve(entry)
    return entry


def call(path: str, args: Any, names: Mapping[str, Any], attr: str | None, where: str) -> Any:
    """The function's value for the named arguments; a text that is a name stands for what it
    names."""
    function: Callable[..., Any] = resolve(path)

    def look(value: Any) -> Any:
        return names.get(value, value) if isinstance(value, str) else value

    try:
        positional = [look(value) for value in args] if isinstance(args, list) else []
        named = {} if isinstance(args, list) else {key: look(value) for key, value in args.items()}
        result = function(*positional, **named)
    except PlayError:
        raise
    except Exception as error:
        raise PlayError(
            f"{where}: {path} cannot be called with symbols: {type(error).__name__}: {error}"
        ) from error
    for part in filter(None, (attr or "").split(".")):
        result = getattr(result, part)
    return result


def read_output(name: str, entry: dict[str, Any], names: Mapping[str, Any]) -> Output:
    where = f"output {name!r}"
    _take(
        entry,
        {"label", "unit", "expr", "args", "attr", "formula", "show", "digits", "scale"},
        where,
    )
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
    )


def read_formula(text: Any, names: Mapping[str, Any], where: str) -> sympy.Expr:
    symbols = {
        key: value for key, value in names.items() if isinstance(value, (int, float, sympy.Basic))
    }
    try:
        return sympy.sympify(str(text), locals=symbols)
    except (sympy.SympifyError, TypeError, SyntaxError) as error:
        raise PlayError(f"{where}: cannot read {text!r}") from error


def read_plot(
    entry: dict[str, Any],
    names: Mapping[str, Any],
    inputs: tuple[Input, ...],
    outputs: list[Output],
) -> Plot:
    _take(entry, {"x", "y", "x_scale", "y_scale", "y_label", "y_min", "y_max", "marks"}, "plot")
    by_name = {item.name: item for item in inputs if not item.options}
    if entry.get("x") not in by_name:
        raise PlayError(f"plot: x must be a slider, one of {', '.join(by_name)}")
    curves = tuple(entry["y"] if isinstance(entry.get("y"), list) else [entry.get("y")])
    known = {output.name: output for output in outputs}
    for curve in curves:
        if curve not in known:
            raise PlayError(f"plot: y names {curve!r}, which is no output")
    units = {known[curve].unit for curve in curves}
    if len(units) != 1:
        raise PlayError(
            f"plot: the curves share one axis and so one unit, got {', '.join(sorted(units))}"
        )
    marks = []
    for mark in entry.get("marks") or []:
        axis = "x" if "x" in mark else "y"
        _take(dict(mark), {axis, "label"}, "plot: mark")
        marks.append(Mark(axis, str(mark["label"]), read_formula(mark[axis], names, "plot: mark")))
    log_x = entry.get("x_scale", "log" if by_name[entry["x"]].log else "linear") == "log"
    bounds = [
        as_float(entry[key], f"plot: {key}") if key in entry else None for key in ("y_min", "y_max")
    ]
    label = str(entry.get("y_label", known[curves[0]].label if len(curves) == 1 else ""))
    return Plot(
        entry["x"],
        curves,
        log_x,
        entry.get("y_scale", "linear") == "log",
        label,
        units.pop(),
        bounds[0],
        bounds[1],
        tuple(marks),
    )
