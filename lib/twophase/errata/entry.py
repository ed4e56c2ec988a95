"""One row of the ledger as HTML: a line that opens, with what was printed and what came out."""

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from twophase.errata.ledger import Finding, Outcome
from twophase.errata.parsing import quotes
from twophase.errata.rows import TOPICS, UNCHECKED, Claim
from twophase.errata.rules import describe_rule

WORDS = {"one": 1, "two": 2}
UNCHECKED_BECAUSE = {
    "definition": "it says what a word means, or follows from that",
    "taste": "a matter of taste",
    "unverifiable": "nobody outside can check it",
}
SHOWN = 3  # values of a row that is computed on several sizes


def number(value: Any, places: int = 0) -> str:
    """A value for people: one digit more than was printed, three that count at least, thousands set
    apart."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ", ".join(number(v, places) for v in value)
    if isinstance(value, int) or value == 0 or not math.isfinite(value):
        return f"{value:,}"
    if abs(value) >= 1e15:
        return f"{value:.3e}"
    decimals = max(places + 1, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}" if abs(value) < 1e6 or places else f"{value:,.0f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _values(claim: Claim, values: Sequence[Any]) -> str:
    places = claim.stated.digits_after_point if claim.formula is None else 0
    shown = [number(value, places) for value in values[:SHOWN]]
    more = len(values) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _unit(claim: Claim) -> str:
    return f" {escape(claim.stated.unit)}" if claim.stated.unit else ""


def is_printed(claim: Claim) -> bool:
    """Whether the number that a row is compared with stands in the words quoted, or only follows
    from them."""
    if isinstance(claim.stated.value, bool) or not claim.stated.text:
        return False
    words = " ".join(quotes(claim.claim)).replace(",", "")
    if claim.formula is not None:
        return bool(words)
    numbers = re.findall(r"\d+(?:\.\d+)?", claim.stated.text.replace(",", ""))
    found = set(re.findall(r"\d+(?:\.\d+)?", words)) | {
        str(n) for word, n in WORDS.items() if re.search(rf"\b{word}\b", words, re.I)
    }
    return all(number.removesuffix(".0") in found or number in found for number in numbers)


def _stated(finding: Finding) -> str:
    claim = finding.claim
    if claim.formula is not None:
        values = _values(claim, finding.outcomes[0].printed)
        return f"<code>{escape(claim.formula)}</code> = {values}{_unit(claim)}"
    if isinstance(claim.stated.value, tuple):
        low, high = claim.stated.value
        return f"{low:g} to {high:g}{_unit(claim)}"
    return escape(claim.stated.text) + _unit(claim)


def _printed(finding: Finding) -> str:
    claim = finding.claim
    if claim.rule == "none":
        return "no number"
    if isinstance(claim.stated.value, bool):
        return "a statement"
    return _stated(finding) if is_printed(claim) else f"no number; it implies {_stated(finding)}"


def _recomputed(finding: Finding) -> str:
    claim = finding.claim
    if not finding.outcomes:
        return "nothing to compute"
    plain = finding.plain
    outcomes = [plain] if plain else finding.outcomes
    return " or ".join(_values(claim, outcome.values) for outcome in outcomes) + _unit(claim)


def _off(finding: Finding) -> str:
    """How far off, in full: the line shows it cut, and not at all on a phone."""
    if not finding.off:
        return ""
    return f"<dt>Off by</dt><dd>{escape(finding.off)} ({finding.severity})</dd>"


def _condition(finding: Finding) -> str:
    if finding.verdict != "holds if":
        return ""
    assumptions = [o.assumption for o in finding.outcomes if o.assumption and o.agrees]
    return f"<dt>Holds if</dt><dd>{escape('; or: '.join(assumptions))}</dd>"


def _named(inputs: Mapping[str, str | float]) -> str:
    return escape("; ".join(f"{name} = {amount}" for name, amount in inputs.items()))


def _steps(claim: Claim) -> str:
    let = (f"{name} = {' '.join(expression.split())}" for name, expression in claim.let.items())
    return "".join(f"<li><code>{escape(line)}</code></li>" for line in let)


def _reading(finding: Finding, outcome: Outcome) -> str:
    mark = (
        ""
        if finding.claim.rule == "none"
        else (" (agrees)" if outcome.agrees else " (does not agree)")
    )
    label = escape(outcome.assumption) if outcome.assumption else "As it stands"
    if outcome.changes:
        label += f" ({_named(outcome.changes)})"
    code = escape(" ".join(outcome.expression.split()))
    return (
        f"<li>{label}: <code>{code}</code> ="
        f" {_values(finding.claim, outcome.values)}{_unit(finding.claim)}{mark}</li>"
    )


def _how(finding: Finding) -> str:
    claim = finding.claim
    inputs = "".join(f"<li>{_named(case)}</li>" for case in claim.cases if case)
    readings = "".join(_reading(finding, outcome) for outcome in finding.outcomes)
    return (
        f"<details><summary>How it was computed</summary><ul>{inputs}{_steps(claim)}{readings}"
        f"<li>Agreement: {escape(describe_rule(claim.rule))}.</li></ul></details>"
    )


def _basis(claim: Claim) -> str:
    """What a verdict rests on where it is not a computation, and where else the claim stands."""
    parts = []
    if claim.kind == "looked up":
        parts.append(f"<dt>Looked up in</dt><dd>{escape(claim.reference)}</dd>")
    elif claim.kind in UNCHECKED:
        parts.append(f"<dt>Not checked</dt><dd>{UNCHECKED_BECAUSE[claim.kind]}</dd>")
    elif claim.kind == "code":
        parts.append("<dt>Code</dt><dd>restated line for line, and run</dd>")
    if claim.same_as:
        parts.append(
            "<dt>The same as</dt>"
            f'<dd><a href="#claim-{claim.same_as}">{claim.same_as}</a>, in other words</dd>'
        )
    return "".join(parts)


def entry(finding: Finding, source_title: str) -> str:
    """One line that opens: verdict, claim and how far off; behind it all the rest."""
    claim = finding.claim
    verdict = finding.verdict.replace(" ", "-")
    factor = finding.off.endswith((" times", " %"))
    off = f"off by {finding.off}" if factor else finding.off
    source = (
        f'<a href="#source={claim.source}">{escape(source_title)}</a>,'
        f" {escape(claim.where)}; chapter {escape(TOPICS[claim.topic])};"
        f' <a href="#claim-{claim.id}">{claim.id}</a>'
    )
    how = _how(finding) if finding.outcomes else ""
    return (
        f'<li><details id="claim-{claim.id}" data-verdict="{finding.verdict}"'
        f' data-topic="{claim.topic}" data-source="{claim.source}"'
        f' data-severity="{finding.severity}"><summary>'
        f'<span class="tp-verdict tp-{verdict}">{finding.verdict}</span>'
        f' <span class="tp-claim">{escape(claim.claim)}</span>'
        f' <span class="tp-off tp-{finding.severity or "right"}">{escape(off)}</span></summary>'
        f"<dl><dt>Printed</dt><dd>{_printed(finding)}</dd>"
        f"<dt>Recomputed</dt><dd>{_recomputed(finding)}</dd>"
        f"{_off(finding)}{_condition(finding)}"
        f"<dt>What is right</dt><dd>{escape(finding.correction)}</dd>{_basis(claim)}"
        f"<dt>Where</dt><dd>{source}</dd></dl>{how}</details></li>"
    )
