"""The rows of the ledger: loaded from YAML and checked, with one clear sentence for each
mistake."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from twophase.errata.rules import NUMBER, Stated, known_rule, parse_stated

VERDICTS = ("holds", "holds if", "wrong", "ambiguous")
TOPICS = {
    "two_phases": "1 Two phases",
    "arithmetic_intensity": "2 Arithmetic intensity",
    "kv_cache": "3 KV cache",
    "latency_throughput": "4 Latency and throughput",
}
FILES = (
    "scaling_book_notes",
    "inference_basics",
    "cs336_lecture10_notes",
    "cs336_lecture10_summary",
    "deep_dive_part6",
)
MAX_WORDS = 25  # of a source, in one row
REQUIRED = ("id", "where", "topic", "claim", "verdict", "correction")
OPTIONAL = ("inputs", "let", "stated", "rule", "expression", "readings")
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")


@dataclass(frozen=True)
class Reading:
    """Another way to read the claim: what it assumes, and what that changes."""

    assumption: str
    inputs: Mapping[str, str | float]
    expression: str | None


@dataclass(frozen=True)
class Claim:
    """One checkable claim. `cases` are the sets of inputs it is computed on, usually one."""

    id: str
    source: str
    where: str
    topic: str
    claim: str
    verdict: str
    correction: str
    stated: Stated
    formula: str | None
    rule: str
    cases: tuple[Mapping[str, str | float], ...]
    let: Mapping[str, str]
    expression: str | None
    readings: tuple[Reading, ...]


@dataclass(frozen=True)
class Source:
    """One of the texts, described as far as it names itself."""

    key: str
    title: str
    author: str
    date: str
    note: str
    claims: tuple[Claim, ...] = field(repr=False)


def amount(text: str | float) -> tuple[float, str]:
    """ "2048 tokens" as (2048, "tokens"). ValueError if it does not start with a number."""
    if isinstance(text, (int, float)):
        return text, ""
    match = NUMBER.match(text)
    if match is None:
        raise ValueError(f"an input is a number and its unit, but this one is {text!r}.")
    digits = match.group(0).replace(",", "")
    value = int(digits) if re.fullmatch(r"[-+]?\d+", digits) else float(digits)
    return value, text[match.end() :].strip()


def quoted_words(claim: str) -> int:
    """Words inside double quotation marks."""
    return sum(len(part.split()) for part in re.findall(r"“([^”]*)”", claim))


def parse_claim(raw: Mapping[str, Any], source: str) -> Claim:
    """A row from its YAML mapping. ValueError names the row and what is wrong with it."""
    name = raw.get("id", "a row without id")
    missing = [key for key in REQUIRED if not raw.get(key)]
    unknown = sorted(set(raw) - set(REQUIRED) - set(OPTIONAL))
    if missing or unknown:
        raise ValueError(
            f"{source}, {name}: missing {missing or 'nothing'}, unknown {unknown or 'nothing'}."
        )
    try:
        return _build(raw, source)
    except (ValueError, TypeError, KeyError) as problem:
        raise ValueError(f"{source}, {name}: {problem}") from None


def _build(raw: Mapping[str, Any], source: str) -> Claim:
    if not SLUG.fullmatch(raw["id"]):
        raise ValueError("an id is lower-case words joined by hyphens.")
    if raw["verdict"] not in VERDICTS or raw["topic"] not in TOPICS:
        raise ValueError(f"the verdict is one of {VERDICTS} and the topic one of {tuple(TOPICS)}.")
    if quoted_words(raw["claim"]) > MAX_WORDS:
        raise ValueError(f"at most {MAX_WORDS} words are quoted.")
    formula, stated = None, raw.get("stated")
    if isinstance(stated, Mapping):
        formula = str(stated["formula"])
        printed = Stated(None, formula, str(stated.get("unit", "")))
    else:
        printed = parse_stated(stated)
    inputs = raw.get("inputs", {})
    cases = tuple(inputs) if isinstance(inputs, list) else (inputs,)
    for case in cases:
        for value in case.values():
            amount(value)
    rule = raw.get("rule", _default_rule(printed, formula))
    if not known_rule(rule):
        raise ValueError(f"unknown rule {rule!r}.")
    readings = tuple(
        Reading(item["assumption"], item.get("inputs", {}), _text(item.get("expression")))
        for item in raw.get("readings", [])
    )
    let = {key: str(value) for key, value in raw.get("let", {}).items()}
    expression = _text(raw.get("expression"))
    if expression is None and (
        len(readings) < 2 or any(reading.expression is None for reading in readings)
    ):
        raise ValueError(
            "a row without an expression needs two readings or more, each with its own."
        )
    facts = (
        raw["id"],
        source,
        raw["where"],
        raw["topic"],
        raw["claim"],
        raw["verdict"],
        raw["correction"].strip(),
    )
    return Claim(*facts, printed, formula, rule, cases, let, expression, readings)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _default_rule(stated: Stated, formula: str | None) -> str:
    if formula is not None:
        return "exactly"
    if stated.value is None:
        return "none"
    if isinstance(stated.value, bool):
        return "truth"
    return "within" if isinstance(stated.value, tuple) else "digits"


def parse_source(text: str, key: str) -> Source:
    """A source and its rows from the text of a YAML file. ValueError for a mistake, or for an id
    used twice."""
    data = yaml.safe_load(text)
    if not isinstance(data, dict) or not {"title", "claims"} <= set(data):
        raise ValueError(f"{key}: a file of claims has a title and claims.")
    claims = tuple(parse_claim(raw, key) for raw in data["claims"])
    ids = [claim.id for claim in claims]
    if doubled := sorted({i for i in ids if ids.count(i) > 1}):
        raise ValueError(f"{key}: ids used twice: {', '.join(doubled)}.")
    return Source(
        key,
        data["title"],
        data.get("author", ""),
        str(data.get("date", "")),
        data.get("note", ""),
        claims,
    )


@cache
def load() -> tuple[Source, ...]:
    """All five sources, in the order of FILES."""
    folder = files("twophase.errata") / "claims"
    return tuple(
        parse_source((folder / f"{key}.yml").read_text(encoding="utf-8"), key) for key in FILES
    )
