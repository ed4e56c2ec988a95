"""The rows of the ledger: loaded from YAML and checked, with one clear sentence for each
mistake."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from twophase.errata.rows import (
    KINDS,
    TOPICS,
    UNCHECKED,
    VERDICTS,
    Claim,
    Error,
    Inputs,
    Reading,
    Source,
)
from twophase.errata.rules import NUMBER, Stated, known_rule, parse_stated

FILES = (
    "scaling_book_notes",
    "inference_basics",
    "cs336_lecture10_notes",
    "cs336_lecture10_summary",
    "deep_dive_part6",
)
MAX_WORDS = 25  # of a source, in one row
REQUIRED = ("id", "where", "topic", "claim", "verdict", "correction")
OPTIONAL = (
    "kind", "reference", "inputs", "chosen", "let", "stated", "rule", "expression", "readings",
    "otherwise", "error",
)  # fmt: skip
TWIN = ("id", "where", "claim", "same_as")
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
ERROR_KEYS = ("expression", "unit")


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


def quotes(claim: str) -> list[str]:
    """What stands inside double quotation marks: the text's own words."""
    return re.findall(r"“([^”]*)”", claim)


def quoted_words(claim: str) -> int:
    """Words inside double quotation marks."""
    return sum(len(part.split()) for part in quotes(claim))


def parse_claim(raw: Mapping[str, Any], source: str) -> Claim:
    """A row from its YAML mapping. ValueError names the row and what is wrong with it."""
    name = raw.get("id", "a row without id")
    required, optional = (TWIN, ()) if "same_as" in raw else (REQUIRED, OPTIONAL)
    missing = [key for key in required if not raw.get(key)]
    unknown = sorted(set(raw) - set(required) - set(optional))
    if missing or unknown:
        raise ValueError(
            f"{source}, {name}: missing {missing or 'nothing'}, unknown {unknown or 'nothing'}."
        )
    try:
        return _twin(raw, source) if "same_as" in raw else _build(raw, source)
    except (ValueError, TypeError, KeyError) as problem:
        raise ValueError(f"{source}, {name}: {problem}") from None


def _twin(raw: Mapping[str, Any], source: str) -> Claim:
    """A row that is settled elsewhere: `settle` fills in what is missing."""
    _check_words(raw)
    return Claim(
        *(raw["id"], source, raw["where"], "", raw["claim"], "", ""),
        *(Stated(None, ""), None, "none", ({},), {}, None, ()),
        same_as=raw["same_as"],
    )


def settle(sources: tuple[Source, ...]) -> tuple[Source, ...]:
    """The sources with each twin given the computation and verdict of the row it names.

    Raises ValueError for a twin of a row that does not exist or is itself a twin.
    """
    rows = {claim.id: claim for source in sources for claim in source.claims if not claim.same_as}

    def settled(claim: Claim) -> Claim:
        if not claim.same_as:
            return claim
        if claim.same_as not in rows:
            raise ValueError(f"{claim.source}, {claim.id}: there is no row {claim.same_as}.")
        own = {name: getattr(claim, name) for name in (*TWIN, "source")}
        return replace(rows[claim.same_as], **own)

    return tuple(replace(s, claims=tuple(map(settled, s.claims))) for s in sources)


def _check_words(raw: Mapping[str, Any]) -> None:
    if not SLUG.fullmatch(raw["id"]):
        raise ValueError("an id is lower-case words joined by hyphens.")
    if quoted_words(raw["claim"]) > MAX_WORDS:
        raise ValueError(f"at most {MAX_WORDS} words are quoted.")


def _build(raw: Mapping[str, Any], source: str) -> Claim:
    _check_words(raw)
    if raw["verdict"] not in VERDICTS or raw["topic"] not in TOPICS:
        raise ValueError(f"the verdict is one of {VERDICTS} and the topic one of {tuple(TOPICS)}.")
    formula, stated = _stated(raw.get("stated"))
    rule = raw.get("rule", _default_rule(stated, formula))
    if not known_rule(rule):
        raise ValueError(f"unknown rule {rule!r}.")
    cases, printed = _cases(raw.get("inputs", {}), raw.get("chosen", {}))
    readings = tuple(_reading(item, printed) for item in raw.get("readings", []))
    expression, kind = _text(raw.get("expression")), raw.get("kind", "computed")
    _check_kind(kind, raw, expression)
    alone = len(readings) < 2 or any(reading.expression is None for reading in readings)
    if expression is None and kind not in UNCHECKED and alone:
        raise ValueError(
            "a row without an expression needs two readings or more, each with its own."
        )
    otherwise = raw.get("otherwise")
    return Claim(
        *(raw["id"], source, raw["where"], raw["topic"], raw["claim"], raw["verdict"]),
        *(raw["correction"].strip(), stated, formula, rule, cases),
        *({key: str(value) for key, value in raw.get("let", {}).items()}, expression, readings),
        printed=printed,
        kind=kind,
        reference=raw.get("reference", ""),
        otherwise=None if otherwise is None else _reading({"assumption": "", **otherwise}),
        error=None if "error" not in raw else Error(*(str(raw["error"][k]) for k in ERROR_KEYS)),
    )


def _stated(raw: object) -> tuple[str | None, Stated]:
    """The formula that the text prints, or None, and what it states."""
    if isinstance(raw, Mapping):
        formula = str(raw["formula"])
        return formula, Stated(None, formula, str(raw.get("unit", "")))
    return None, parse_stated(raw)


def _cases(
    inputs: Inputs | list[Inputs], chosen: Inputs | list[Inputs]
) -> tuple[tuple[Inputs, ...], frozenset[str]]:
    """Every combination of what is printed and what is chosen, and the names of what is printed."""
    both = [part if isinstance(part, list) else [part] for part in (inputs, chosen)]
    printed = frozenset(name for case in both[0] for name in case)
    if twice := printed & {name for case in both[1] for name in case}:
        raise ValueError(f"{sorted(twice)[0]} is both printed and chosen.")
    cases = tuple({**of_text, **ours} for of_text in both[0] for ours in both[1])
    for case in cases:
        for value in case.values():
            amount(value)
    return cases, printed


def _reading(item: Mapping[str, Any], printed: frozenset[str] = frozenset()) -> Reading:
    inputs = item.get("inputs", {})
    if replaced := sorted(printed & set(inputs)):
        raise ValueError(f"a reading replaces {replaced[0]}, which the text prints.")
    return Reading(item["assumption"], inputs, _text(item.get("expression")))


def _check_kind(kind: str, raw: Mapping[str, Any], expression: str | None) -> None:
    if kind not in KINDS:
        raise ValueError(f"the kind is one of {KINDS}.")
    if (kind in UNCHECKED) != (raw["verdict"] == "not checked"):
        raise ValueError(f"what is of the kinds {UNCHECKED}, and nothing else, is not checked.")
    if kind in UNCHECKED and (expression is not None or raw.get("readings")):
        raise ValueError("what is not checked has neither an expression nor readings.")
    if (kind == "looked up") != bool(raw.get("reference")):
        raise ValueError("what is looked up, and nothing else, has a reference.")
    if kind == "code" and raw.get("readings"):
        raise ValueError("code is run as it stands: it has no readings.")


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
    texts = ((key, (folder / f"{key}.yml").read_text(encoding="utf-8")) for key in FILES)
    return settle(tuple(parse_source(text, key) for key, text in texts))
