"""Evaluates the rows: each expression with the functions of `twophase.theory`, and the verdict that
follows."""

import inspect
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import CodeType
from typing import Any

from twophase.errata import witnesses
from twophase.errata.parsing import amount, load
from twophase.errata.rows import UNCHECKED, Claim, Reading
from twophase.errata.rules import agrees, same
from twophase.theory import (
    arithmetic_intensity,
    catalog,
    collectives,
    continuous_batching,
    grouped_query_attention,
    kv_cache,
    latency_throughput,
    latent_attention,
    local_attention,
    mixture_of_experts,
    paging,
    params,
    quantization,
    sharding,
    speculative_decoding,
    two_phases,
)
from twophase.theory.sizes import MixtureOfExperts

MODULES = (
    params,
    two_phases,
    arithmetic_intensity,
    kv_cache,
    latency_throughput,
    grouped_query_attention,
    latent_attention,
    local_attention,
    collectives,
    sharding,
    mixture_of_experts,
    quantization,
    speculative_decoding,
    continuous_batching,
    paging,
)
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
# how far off a claim may be (a factor) and still be called so
SEVERITIES = ((1.05, "slight"), (2.0, "notable"), (math.inf, "grave"))
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
    same. `off` says how far the claim, taken as it stands, is from what is right (empty where it
    is not), and `severity` what that means for somebody who relies on it."""

    claim: Claim
    outcomes: tuple[Outcome, ...]
    verdict: str
    correction: str
    off: str = ""
    severity: str = ""

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


def outcome_of(claim: Claim, reading: Reading | None = None) -> Outcome:
    """A claim computed on all its cases: as it stands, or as `reading` changes it."""
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
    if claim.kind in UNCHECKED:
        return "not checked"
    if claim.expression is None:
        told_apart = not all(same(case) for case in zip(*(o.values for o in outcomes), strict=True))
        return (
            "ambiguous" if told_apart else ("holds" if all(o.agrees for o in outcomes) else "wrong")
        )
    if outcomes[0].agrees:
        return "holds"
    if claim.kind == "code":
        return "bug"
    return "holds if" if any(o.agrees for o in outcomes[1:]) else "wrong"


def _off(claim: Claim, plain: Outcome) -> tuple[str, str]:
    """How far the claim as it stands is off, in words, and how severe that is."""
    difference = "grave" if claim.kind == "code" else "notable"
    if claim.error is not None:
        scope = scope_of(claim, claim.cases[0]) | {"value": plain.values[0]}
        size = float(eval(_compiled(claim.error.expression), scope))
        if claim.error.unit == "times":
            return _times(max(size, 1 / size))
        return f"{amount_in_words(size)} {claim.error.unit}", difference
    if isinstance(claim.stated.value, bool):
        raise ValueError("a statement that is not true needs `error`: how far off it is.")
    pairs = list(_pairs(claim, plain))
    differences = [f"{amount_in_words(abs(v - w))} {claim.stated.unit}" for v, w in pairs]
    if any(v * w <= 0 for v, w in pairs):
        return differences[0], difference
    return _times(max(max(v / w, w / v) for v, w in pairs))


def _pairs(claim: Claim, plain: Outcome) -> Iterator[tuple[float, float]]:
    """Every recomputed number beside the one that the text has; of a range, its nearer end."""
    for i, computed in enumerate(plain.values):
        stated = plain.printed[i] if claim.formula is not None else claim.stated.value
        values = list(computed) if isinstance(computed, (list, tuple)) else [computed]
        if claim.rule == "within":
            low, high = stated
            yield from ((v, min(max(v, low), high)) for v in values)
        else:
            wanted = list(stated) if isinstance(stated, (list, tuple)) else [stated] * len(values)
            yield from zip(values, wanted, strict=True)


def _times(factor: float) -> tuple[str, str]:
    severity = next(name for limit, name in SEVERITIES if factor < limit)
    if factor < 1.1:
        return f"{amount_in_words(100 * (factor - 1))}%", severity
    return f"{amount_in_words(factor)} times", severity


def amount_in_words(value: float) -> str:
    """A size with three digits that count, thousands set apart."""
    if value == 0 or value >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def fill(text: str, scope: Mapping[str, Any]) -> str:
    """Replace {expression} and {expression:format} by what they come to, so that no number is typed
    by hand."""

    def number(match: re.Match[str]) -> str:
        return format(eval(_compiled(match[1]), dict(scope)), match[2] or "")

    return SLOT.sub(number, text)


def judge(claim: Claim) -> Finding:
    """Compute one claim. ValueError names the row if an expression cannot be evaluated."""
    try:
        plain = [outcome_of(claim)] if claim.expression is not None else []
        outcomes = (*plain, *(outcome_of(claim, reading) for reading in claim.readings))
        scope = scope_of(claim, claim.cases[0])
        if outcomes:
            scope["value"] = outcomes[0].values[0]
        off, severity = _off(claim, plain[0]) if plain and not plain[0].agrees else ("", "")
        correction = " ".join(fill(claim.correction, scope).split())
    except Exception as problem:
        raise ValueError(
            f"{claim.source}, {claim.id}: {type(problem).__name__}: {problem}"
        ) from problem
    return Finding(claim, outcomes, _verdict(claim, outcomes), correction, off, severity)


@cache
def findings() -> tuple[Finding, ...]:
    """Every claim of every source, computed."""
    return tuple(judge(claim) for source in load() for claim in source.claims)
