"""The ledger as HTML: a list per source, one line a row, that can be filtered (`#verdict=wrong`),
searched and linked (`#claim-<id>`)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from twophase.errata.entry import entry
from twophase.errata.ledger import SEVERITIES, Finding, findings
from twophase.errata.parsing import load
from twophase.errata.rows import TOPICS, VERDICTS, Source
from twophase.errata.rules import RULES


class Html(str):
    """A string that a notebook shows as HTML."""

    def _repr_html_(self) -> str:
        return str(self)


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


def rows_of(key: str) -> Html:
    """The rows of one source, in the order of its text. ValueError for an unknown key."""
    source = _of(key)
    body = "".join(
        entry(finding, source.title) for finding in findings() if finding.claim.source == source.key
    )
    return Html(
        f'<ul class="tp-ledger" id="source-{key}" aria-label="{escape(source.title)}">{body}</ul>'
    )


def _count_line(title: str, link: str, rows: Sequence[Finding]) -> str:
    verdicts = Counter(finding.verdict for finding in rows)
    grave = sum(finding.severity == "grave" for finding in rows)
    cells = "".join(f"<td>{n}</td>" for n in (len(rows), *(verdicts[v] for v in VERDICTS), grave))
    return f'<tr><th scope="row">{link or escape(title)}</th>{cells}</tr>'


def counts() -> Html:
    """How many claims of each source come out how, and how many are off by a factor of two and
    more."""
    names = ("Source", "claims", *VERDICTS, "grave")
    heads = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = ""
    for source in load():
        link = f'<a href="#source-{source.key}">{escape(source.title)}</a>'
        rows = [f for f in findings() if f.claim.source == source.key]
        body += _count_line(source.title, link, rows)
    body += _count_line("All", "", findings())
    return Html(
        '<div class="tp-scroll"><table'
        f' class="tp-counts"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def severities() -> Html:
    """What the words for how far off a claim is mean, as a list."""
    (_, slight), (twice, notable), (_, grave) = SEVERITIES
    percent = 100 * (SEVERITIES[0][0] - 1)
    items = (
        f"<dt>{slight}</dt><dd>off by less than {percent:.0f}%</dd>"
        f"<dt>{notable}</dt><dd>off by more, up to a factor of {twice:g}; or by a difference</dd>"
        f"<dt>{grave}</dt><dd>off by a factor of {twice:g} or more; or code that does harm</dd>"
    )
    return Html(f"<dl>{items}</dl>")


def agreement() -> Html:
    """The rules of tolerance, as a list."""
    items = "".join(
        f"<dt>{escape(name.replace(' %', '%'))}</dt><dd>{escape(text)}</dd>"
        for name, text in RULES.items()
    )
    return Html(f"<dl>{items}</dl>")


def _options(pairs: Iterable[tuple[str, str]]) -> str:
    return "".join(f'<option value="{value}">{escape(label)}</option>' for value, label in pairs)


def controls() -> Html:
    """The filter above the tables: words, verdict, chapter; with the style and the script that
    serve them. Without a script it is not shown."""
    folder = files("twophase.errata")
    style = (folder / "ledger.css").read_text(encoding="utf-8")
    script = (folder / "ledger.js").read_text(encoding="utf-8")
    selects = "".join(
        f'<label>{label} <select name="{name}" autocomplete="off">'
        f"{_options([('', 'all'), *pairs])}</select></label>"
        for label, name, pairs in (
            ("Verdict", "verdict", [(v, v) for v in VERDICTS]),
            ("Off by", "severity", [(name, name) for _, name in SEVERITIES]),
            ("Chapter", "topic", list(TOPICS.items())),
            ("Source", "source", [(s.key, s.title) for s in load()]),
        )
    )
    return Html(
        f'<style>{style}</style><form class="tp-filter" role="search" aria-label="Filter the'
        ' claims"><label>Words <input type="search" name="words" placeholder="Mistral, 8.08, GiB"'
        f' autocomplete="off"></label>{selects}<output aria-live="polite"></output><p>The filter stands'
        ' in the address of the page, as in <a href="#verdict=wrong">all that is wrong</a>, so that'
        " what you see can be linked.</p></form>"
        f"<script>{script}</script>"
    )
