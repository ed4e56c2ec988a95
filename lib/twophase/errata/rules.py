"""When does a computed value agree with a printed one? The rules of tolerance, from the digits that
were printed."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

NUMBER = re.compile(r"^[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
CUT_LIMIT = 0.01  # cutting digits off instead of rounding is let pass below one per cent
EXACT = 1e-9  # relative; what floating point may lose
DEFAULT_ABOUT = 5.0  # per cent, where a text writes "about" or a wave

RULES = {
    "digits": "agrees to the stated digits: rounded, or cut off where that loses less than 1%",
    "N digits": "agrees to the first N digits (the zeros behind them only fill up)",
    "about": f"what is printed is approximate: within {DEFAULT_ABOUT:g}%",
    "about N %": "what is printed is approximate: within N%",
    "exactly": "equal, but for floating point",
    "within": "every recomputed value lies in the stated range",
    "truth": "the statement, as a condition on numbers, is true",
    "none": "the text states no value; what is asked is whether its readings agree with each other",
}


@dataclass(frozen=True)
class Stated:
    """What the text prints: its number (or two, for a range), the number's text and the unit."""

    value: Any
    text: str
    unit: str = ""

    @property
    def digits_after_point(self) -> int:
        """Digits behind the decimal point of the printed number."""
        mantissa = self.text.replace(",", "").lower().split("e")[0]
        return len(mantissa.partition(".")[2])


def parse_stated(raw: object) -> Stated:
    """From "8.08 ms", "16 to 17 GB", true, a plain number or None. ValueError for text without a
    number."""
    if raw is None or isinstance(raw, bool):
        return Stated(raw, "" if raw is None else str(raw).lower())
    text = str(raw).strip()
    match = NUMBER.match(text)
    if match is None:
        raise ValueError(f"a stated value starts with a number, but this one is {raw!r}.")
    first, rest = match.group(0), text[match.end() :].strip()
    low = float(first.replace(",", ""))
    if rest.startswith("to "):
        second = NUMBER.match(rest[3:].strip())
        if second is None:
            raise ValueError(f"a range is 'LOW to HIGH unit', but this one is {raw!r}.")
        unit = rest[3:].strip()[second.end() :].strip()
        return Stated((low, float(second.group(0).replace(",", ""))), first, unit)
    return Stated(low, first, rest)


def agrees(computed: Any, stated: Stated, rule: str) -> bool:
    """Whether `computed` supports `stated` under `rule` (a key of RULES, N filled in). ValueError
    if it is no rule."""
    values = list(computed) if isinstance(computed, (list, tuple)) else [computed]
    if rule == "truth":
        return all(bool(v) is bool(stated.value) for v in values)
    if rule == "within":
        low, high = stated.value
        return all(low * (1 - EXACT) <= v <= high * (1 + EXACT) for v in values)
    wanted = (
        list(stated.value)
        if isinstance(stated.value, (list, tuple))
        else [stated.value] * len(values)
    )
    if len(wanted) != len(values):
        raise ValueError(f"{len(values)} values were computed for {len(wanted)} stated ones.")
    return all(_close(v, w, stated, rule) for v, w in zip(values, wanted, strict=True))


def _close(computed: float, wanted: float, stated: Stated, rule: str) -> bool:
    if rule == "exactly":
        return math.isclose(computed, wanted, rel_tol=EXACT)
    if rule == "digits":
        return _to_digits(computed, wanted, stated.digits_after_point)
    if found := re.fullmatch(r"(\d+) digits", rule):
        if wanted == 0:
            return computed == 0
        return _to_digits(computed, wanted, int(found[1]) - 1 - math.floor(math.log10(abs(wanted))))
    if found := re.fullmatch(r"about(?: ([\d.]+) %)?", rule):
        return abs(computed - wanted) <= float(found[1] or DEFAULT_ABOUT) / 100 * abs(wanted)
    raise ValueError(f"unknown rule {rule!r}; known: {', '.join(RULES)}.")


def _to_digits(computed: float, wanted: float, places: int) -> bool:
    """Rounded half up or down, or cut, to `places` digits behind the point."""
    unit = 10.0**-places
    slack = EXACT * max(abs(computed), abs(wanted))
    rounded = abs(computed - wanted) <= unit / 2 + slack
    lost = abs(computed) - abs(wanted)
    cut = -slack <= lost < unit and lost < CUT_LIMIT * abs(computed) and computed * wanted > 0
    return rounded or cut


def known_rule(rule: str) -> bool:
    """Whether `rule` is one of RULES, with its number filled in."""
    return rule in RULES or bool(re.fullmatch(r"\d+ digits|about [\d.]+ %", rule))


def describe_rule(rule: str) -> str:
    """The rule in words, its number filled in."""
    if rule in RULES:
        return RULES[rule]
    key = re.sub(r"[\d.]+", "N", rule)
    return re.sub(r"\bN\b", rule.replace("about ", "").split()[0], RULES[key])


def same(values: Iterable[Any]) -> bool:
    """Whether all values are equal, but for floating point."""
    first, *others = list(values)
    return all(
        v == first or (isinstance(v, (int, float)) and math.isclose(v, first, rel_tol=1e-6))
        for v in others
    )
