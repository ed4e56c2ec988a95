"""From a function of the package to a formula of the page: the function is called with sympy
symbols and printed as JavaScript. Nothing here knows Sphinx.
"""

import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import sympy
from sympy.printing.jscode import JavascriptCodePrinter

STEP = re.compile(r"\[([^\]]*)\]|\.?(\w+)")


class PlayError(ValueError):
    """What is wrong with a ``{play}`` box, in one sentence."""


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
        return follow(found, ".".join(parts[cut:]) + bracket + rest, path)
    raise PlayError(f"{path!r} cannot be imported")


def follow(found: Any, steps: str, path: str) -> Any:
    """What `steps`, attributes and keys in brackets, lead to from an object."""
    for key, name in STEP.findall(steps):
        try:
            found = getattr(found, name) if name else found[key]
        except (AttributeError, KeyError, TypeError):
            raise PlayError(f"{path!r}: there is no {name or key!r}") from None
    return found


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


def symbol(name: str, positive: bool) -> sympy.Symbol:
    """What stands for an input while functions are called."""
    if positive:
        return sympy.Symbol(name, positive=True)
    return sympy.Symbol(name, nonnegative=True)


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


def read_formula(text: Any, names: Mapping[str, Any], where: str) -> sympy.Expr:
    """Plain arithmetic on names that are there already."""
    symbols = {
        key: value for key, value in names.items() if isinstance(value, (int, float, sympy.Basic))
    }
    try:
        return sympy.sympify(str(text), locals=symbols)
    except (sympy.SympifyError, TypeError, SyntaxError) as error:
        raise PlayError(f"{where}: cannot read {text!r}") from error


def take(entry: Mapping[str, Any], allowed: set[str], where: str) -> None:
    """PlayError for a key that has no meaning there."""
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
