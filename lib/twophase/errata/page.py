"""The ledger as HTML: a table per source whose rows can be filtered, searched and linked
(`#claim-<id>`)."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from twophase.errata.ledger import Finding, Outcome, findings
from twophase.errata.parsing import load
from twophase.errata.rows import TOPICS, VERDICTS, Claim, Source
from twophase.errata.rules import RULES, describe_rule

SHOWN = 3  # values of a row that is computed on several sizes


class Html(str):
    """A string that a notebook shows as HTML."""

    def _repr_html_(self) -> str:
        return str(self)


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


def _printed(finding: Finding) -> str:
    claim = finding.claim
    if claim.formula is not None:
        values = _values(claim, finding.outcomes[0].printed)
        return f"<code>{escape(claim.formula)}</code> = {values}{_unit(claim)}"
    if claim.rule == "none":
        return "nothing"
    if isinstance(claim.stated.value, bool):
        return "a statement"
    if isinstance(claim.stated.value, tuple):
        low, high = claim.stated.value
        return f"{low:g} to {high:g}{_unit(claim)}"
    return escape(claim.stated.text) + _unit(claim)


def _recomputed(finding: Finding) -> str:
    claim = finding.claim
    plain = finding.plain
    outcomes = [plain] if plain else finding.outcomes
    return " or ".join(_values(claim, outcome.values) for outcome in outcomes) + _unit(claim)


def _condition(finding: Finding) -> str:
    if finding.verdict != "holds if":
        return ""
    assumptions = [o.assumption for o in finding.outcomes if o.assumption and o.agrees]
    return f'<p class="tp-if">{escape("; or: ".join(assumptions))}</p>'


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


def _row(finding: Finding) -> str:
    claim = finding.claim
    chapter = TOPICS[claim.topic]
    return (
        f'<tr id="claim-{claim.id}" data-verdict="{finding.verdict}" data-topic="{claim.topic}"><td'
        f' data-label="Claim"><p class="tp-claim">{escape(claim.claim)}</p><p'
        f' class="tp-where">{escape(claim.where)} · chapter {escape(chapter)} · <a'
        f' href="#claim-{claim.id}">{claim.id}</a></p></td><td'
        f' data-label="Printed">{_printed(finding)}</td><td'
        f' data-label="Recomputed">{_recomputed(finding)}</td><td data-label="Verdict"><span'
        ' class="tp-verdict'
        f' tp-{finding.verdict.replace(" ", "-")}">{finding.verdict}</span>{_condition(finding)}</td><td'
        f' data-label="What is right"><p>{escape(finding.correction)}</p>{_how(finding)}</td></tr>'
    )


def _of(key: str) -> Source:
    for source in load():
        if source.key == key:
            return source
    raise ValueError(f"No source {key!r} in the ledger; it has {', '.join(s.key for s in load())}.")


def describe(key: str) -> Html:
    """Title, author and date of a source as far as it gives them. ValueError for an unknown key."""
    source = _of(key)
    facts = [source.author or "no author given", source.date or "no date given"]
    return Html(
        f"<p><cite>{escape(source.title)}</cite> ({escape(', '.join(facts))})."
        f" {escape(source.note)}</p>"
    )


def table(key: str) -> Html:
    """The rows of one source, in the order of its text. ValueError for an unknown key."""
    source = _of(key)
    heads = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("Claim", "Printed", "Recomputed", "Verdict", "What is right")
    )
    body = "".join(_row(finding) for finding in findings() if finding.claim.source == source.key)
    return Html(
        "<table"
        f' class="tp-ledger"><caption>{escape(source.title)}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
    )


def _tally(rows: Iterable[Finding]) -> Mapping[str, int]:
    return Counter(finding.verdict for finding in rows)


def counts() -> Html:
    """How many claims of each source hold, hold under an assumption, are wrong or ambiguous."""
    lines = [(s.title, _tally(f for f in findings() if f.claim.source == s.key)) for s in load()]
    lines.append(("All", _tally(findings())))
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("Source", "claims", *VERDICTS))
    body = ""
    for title, tally in lines:
        cells = "".join(
            f"<td>{n}</td>" for n in (sum(tally.values()), *(tally.get(v, 0) for v in VERDICTS))
        )
        body += f'<tr><th scope="row">{escape(title)}</th>{cells}</tr>'
    return Html(
        '<div class="tp-scroll"><table'
        f' class="tp-counts"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def agreement() -> Html:
    """The rules of tolerance, as a list."""
    items = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in RULES.items()
    )
    return Html(f"<dl>{items}</dl>")


def _options(pairs: Iterable[tuple[str, str]]) -> str:
    return "".join(f'<option value="{value}">{escape(label)}</option>' for value, label in pairs)


def controls() -> Html:
    """The filter above the tables: words, verdict, chapter; with the style and the script that
    serve them."""
    folder = files("twophase.errata")
    style = (folder / "ledger.css").read_text(encoding="utf-8")
    script = (folder / "ledger.js").read_text(encoding="utf-8")
    verdicts = _options([("", "all"), *((v, v) for v in VERDICTS)])
    topics = _options([("", "all"), *TOPICS.items()])
    return Html(
        f'<style>{style}</style><form class="tp-filter" role="search" aria-label="Filter the'
        ' claims"><label>Words <input type="search" name="words" placeholder="Mistral, 8.08, GiB"'
        ' autocomplete="off"></label><label>Verdict <select name="verdict"'
        f' autocomplete="off">{verdicts}</select></label><label>Chapter <select name="topic"'
        f' autocomplete="off">{topics}</select></label><output'
        f' aria-live="polite"></output></form><script>{script}</script>'
    )
