"""Evaluates the rows: each expression with the functions of `twophase.theory`, and the verdict that
follows."""

import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import CodeType
from typing import Any

from twophase.errata import witnesses
from twophase.errata.rows import Claim, Reading, amount, load
from twophase.errata.rules import agrees, same
from twophase.theory import (
    arithmetic_intensity,
    catalog,
    kv_cache,
    latency_throughput,
    params,
    two_phases,
)
from twophase.theory.sizes import MixtureOfExperts

MODULES = (params, two_phases, arithmetic_intensity, kv_cache, latency_throughput)
UNITS = {
    "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "TFLOP": 1e12, "MiB": 2**20, "GiB": 2**30, "ms": 1e-3, "s": 1.0, "Ki": 1024,
    "million": 1e6, "billion": 1e9, "percent": 0.01,
}  # fmt: skip
PLAIN = {
    "all": all,
    "any": any,
    "abs": abs,
    "len": len,
    "max": max,
    "min": min,
    "range": range,
    "sum": sum,
    "log2": math.log2,
}
SLOT = re.compile(r"\{([^{}]+?)(?::([^{}:]*))?\}")


@dataclass(frozen=True)
class Outcome:
    """One reading, computed on each case: what it assumes (empty for the plain one) and changes,
    what the claim's own formula gives (`printed`, empty if it prints a number), the values, and
    whether they agree."""

    assumption: str
    changes: Mapping[str, str | float]
    expression: str
    printed: tuple[Any, ...]
    values: tuple[Any, ...]
    agrees: bool


@dataclass(frozen=True)
class Finding:
    """A claim with what came out. `verdict` follows from the numbers; the row's own must be the
    same."""

    claim: Claim
    outcomes: tuple[Outcome, ...]
    verdict: str
    correction: str

    @property
    def plain(self) -> Outcome | None:
        """The claim taken as it stands, or None where the text leaves that open."""
        return next((outcome for outcome in self.outcomes if not outcome.assumption), None)


def _public(module: Any) -> dict[str, Any]:
    return {
        name: member
        for name, member in vars(module).items()
        if inspect.isfunction(member)
        and member.__module__ == module.__name__
        and not name.startswith("_")
    }


@cache
def vocabulary() -> dict[str, Any]:
    """The names an expression may use: formulas, catalog, units, witnesses and a few built-in
    functions."""
    names: dict[str, Any] = {
        "__builtins__": {},
        "model": catalog.model,
        "hardware": catalog.hardware,
    }
    for module in MODULES:
        for name, member in _public(module).items():
            if name in names:
                raise ValueError(f"two formulas are called {name}.")
            names[name] = member
    return {
        **names,
        **UNITS,
        **PLAIN,
        "replace": replace,
        "MixtureOfExperts": MixtureOfExperts,
        "witness": witnesses,
    }


@cache
def _compiled(expression: str) -> CodeType:
    return compile(" ".join(expression.split()), "<claim>", "eval")


def scope_of(claim: Claim, inputs: Mapping[str, str | float]) -> dict[str, Any]:
    """The names of one case: the vocabulary, the inputs as numbers, and what `let` derives from
    them."""
    scope = vocabulary() | {name: amount(value)[0] for name, value in inputs.items()}
    for name, expression in claim.let.items():
        scope[name] = eval(_compiled(expression), scope)
    return scope


def _outcome(claim: Claim, reading: Reading | None) -> Outcome:
    changes = reading.inputs if reading else {}
    expression = (reading.expression if reading else None) or claim.expression or ""
    values, printed, verdicts = [], [], []
    for inputs in claim.cases:
        scope = scope_of(claim, {**inputs, **changes})
        value = eval(_compiled(expression), scope)
        stated = claim.stated
        if claim.formula is not None:
            stated = replace(stated, value=eval(_compiled(claim.formula), scope))
            printed.append(stated.value)
        values.append(value)
        verdicts.append(claim.rule == "none" or agrees(value, stated, claim.rule))
    return Outcome(
        reading.assumption if reading else "",
        changes,
        expression,
        tuple(printed),
        tuple(values),
        all(verdicts),
    )


def _verdict(claim: Claim, outcomes: tuple[Outcome, ...]) -> str:
    if claim.expression is None:
        told_apart = not all(same(case) for case in zip(*(o.values for o in outcomes), strict=True))
        return (
            "ambiguous" if told_apart else ("holds" if all(o.agrees for o in outcomes) else "wrong")
        )
    if outcomes[0].agrees:
        return "holds"
    return "holds if" if any(o.agrees for o in outcomes[1:]) else "wrong"


def fill(text: str, scope: Mapping[str, Any]) -> str:
    """Replace {expression} and {expression:format} by what they come to, so that no number is typed
    by hand."""

    def number(match: re.Match[str]) -> str:
        return format(eval(_compiled(match[1]), dict(scope)), match[2] or "")

    return SLOT.sub(number, text)


def judge(claim: Claim) -> Finding:
    """Compute one claim. ValueError names the row if an expression cannot be evaluated."""
    try:
        plain = [_outcome(claim, None)] if claim.expression is not None else []
        outcomes = (*plain, *(_outcome(claim, reading) for reading in claim.readings))
        scope = scope_of(claim, claim.cases[0])
        scope["value"] = outcomes[0].values[0]
        correction = " ".join(fill(claim.correction, scope).split())
    except Exception as problem:
        raise ValueError(
            f"{claim.source}, {claim.id}: {type(problem).__name__}: {problem}"
        ) from problem
    return Finding(claim, outcomes, _verdict(claim, outcomes), correction)


@cache
def findings() -> tuple[Finding, ...]:
    """Every claim of every source, computed."""
    return tuple(judge(claim) for source in load() for claim in source.claims)
