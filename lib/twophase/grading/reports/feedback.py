"""The report that a person reads: a page per submission and an index. Standalone, without script,
every text of theirs escaped."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Iterable
from pathlib import Path

from twophase.grading.files.atomic import replace_text
from twophase.grading.files.digests import library_digest
from twophase.grading.results.records import Record, line_of, result_of

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fff; --soft: #5b6470; --line: #d5d9df; --box: #f4f6f8;
  --good: #14663a; --bad: #a3231d; --note: #7a5200; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #16181b; --soft: #a4adb8; --line: #3a4048; --box: #212529;
  --good: #6fd39b; --bad: #ff9b93; --note: #f0c061; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .3rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .4rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
pre { background: var(--box); border: 1px solid var(--line); padding: .6rem; overflow: auto; max-height: 20rem;
  white-space: pre-wrap; }
.asked td { border-bottom: none; }
.right { color: var(--good); } .wrong, .failed, .missing { color: var(--bad); } .not_yet, .flag { color: var(--note); }
.soft { color: var(--soft); font-size: .9rem; } a { color: inherit; }
details { margin: .6rem 0; } summary { cursor: pointer; }
@media print { :root { color-scheme: light; } body { font-size: 11pt; margin: 0 auto; } pre { max-height: none; } tr, pre { break-inside: avoid; }
  h2 { break-after: avoid; }
  /* paper has nothing to unfold with */
  details::details-content { content-visibility: visible !important; block-size: auto !important; } }
"""
WORDS = {
    "right": "right",
    "wrong": "not right",
    "not_yet": "not written yet",
    "missing": "missing",
    "failed": "could not be judged",
}
STATUS_WORDS = {
    "ok": "graded",
    "partial": "graded; some of it broke while it ran",
    "protocol": "graded; it spoke out of turn on the grader's channel",
    "unreadable": "not graded: the file cannot be read",
    "internal": "not graded: the grader failed, not the work",
}
SHOWN_AT_ONCE = 3  # wrong cases that stand open
# also what reorders text, and halves of letters, which nothing can print
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def text(value: object) -> str:
    """Somebody else's text, safe in a page: escaped, without control characters."""
    return html.escape(CONTROL.sub("�", str(value)), quote=True)


def prose(value: object) -> str:
    """A sentence with code between backticks, as HTML; as safe as `text`."""
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", text(value))


def page_name(file: str) -> str:
    """A file name for a submission's page that no submission's name can choose."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", file.removesuffix(".ipynb")).strip("-")[:60]
    return f"{readable or 'submission'}-{hashlib.sha256(file.encode('utf-8', 'replace')).hexdigest()[:10]}.html"


def write(folder: Path, records: Iterable[Record]) -> Path:
    """Write `feedback/` below `folder`: a page per record and `index.html`, whose path is returned.

    Pages that are there and up to date stay; one record is in memory at a time. Raises OSError.
    """
    feedback = folder / "feedback"
    feedback.mkdir(parents=True, exist_ok=True)
    rows = []
    for record in records:
        rows.append(_row(record))
        path, mark = feedback / page_name(record["file"]), _mark(record)
        if not _is_marked(path, mark):
            replace_text(path, page(record, mark))
    return replace_text(feedback / "index.html", _index(rows))


def _mark(record: Record) -> str:
    """What a page was made from and by: another mark, another page."""
    return hashlib.sha256(library_digest().encode("ascii") + line_of(result_of(record))).hexdigest()


def _is_marked(path: Path, mark: str) -> bool:
    try:
        with path.open("rb") as f:
            return f'content="{mark}"'.encode("ascii") in f.read(400)
    except OSError:
        return False


def points(record: Record) -> str:
    """`6 of 8`, or a dash for work that was not graded."""
    return "–" if record["points"] is None else f"{record['points']:g} of {record['out_of']:g}"


def page(record: Record, mark: str = "") -> str:
    """The page of one submission."""
    parts = [f"<h1>{text(record['file'])}</h1>", f"<p><strong>{points(record)}</strong> points"]
    parts.append(f"<span class=soft>({text(STATUS_WORDS[record['status']])})</span></p>")
    if not record["official"]:
        parts.append(f"<p class=flag><strong>{text(unofficial(record))}</strong></p>")
    if record["message"]:
        parts.append(f"<p class=failed>{prose(record['message'])}</p>")
    parts += [_question(q) for q in record["questions"]]
    if record["flags"]:
        rows = "".join(f"<tr><td>{text(f['where'])}<td>{text(f['says'])}" for f in record["flags"])
        parts.append(f"<h2>Noticed</h2><table class=flag><tr><th>where<th>what{rows}</table>")
    digests, where = record["digests"], record["environment"]
    parts.append(
        f"<p class=soft>{_cases_of(record)}; confined by {text(', '.join(record['confined_by']))};"
        f" twophase {text(where['twophase'])}, Python {text(where['python'])}, torch"
        f" {text(where['torch'])}; submission {text(digests['submission'][:16])}, release"
        f" {text(digests['release'][:16])}.</p>"
    )
    return standalone(record["file"], "\n".join(parts), mark=mark)


def unofficial(record: Record) -> str:
    """Why a result does not count as the official grader's, as a heading."""
    if "practice" in record["confined_by"]:
        return "Practice, not an official result: this system cannot confine a submission."
    return (
        "Not an official result: it was graded without what should confine a submission (--unsafe)."
    )


def _cases_of(record: Record) -> str:
    """Which cases were drawn. A seed that comes from the course's secret stays secret: others will
    meet the same cases."""
    return (
        f"Seed {record['seed']}"
        if isinstance(record["seed"], int)
        else "Cases from the course's secret"
    )


def _question(q: Record) -> str:
    head = (
        f"<h2>{text(q['title'])} <span class={text(q['status'])}>{WORDS[q['status']]}</span></h2>"
    )
    parts = [head, f"<p class=soft>{text(q['id'])} · {q['points']:g} of {q['out_of']:g} points</p>"]
    if q["status"] != "right":
        named = (
            f"<strong>{text(q['misconception'].replace('_', ' '))}</strong>: "
            if q["misconception"]
            else ""
        )
        parts.append(f"<p>{named}{prose(q['message'])}</p>")
        if q["hint"] and q["status"] in ("wrong", "failed"):
            parts.append(f"<p>A hint: {prose(q['hint'])}</p>")
        shown = [c for c in q["cases"] if c["public"]]
        if q["status"] == "failed":  # what broke the process, and no case after it
            shown = [c for c in shown if c.get("inputs")]
        if shown and q["status"] in ("wrong", "failed"):
            parts.append(_cases(shown))
            hidden = sum(not c["public"] for c in q["cases"])
            more = f"{_counted(hidden, 'more case')} {'is' if hidden == 1 else 'are'} not shown."
            parts.append(f"<p class=soft>{more}</p>" if hidden else "")
    if q["cell"]["error"]:
        parts.append(
            "<p class=soft>Its cell stopped with</p><pre"
            f" tabindex=0>{text(q['cell']['error'])}</pre>"
        )
    if q["cell"]["output"].strip():
        parts.append(
            f"<p class=soft>Its cell printed</p><pre tabindex=0>{text(q['cell']['output'])}</pre>"
        )
    return "\n".join(parts)


def _cases(shown: list[Record]) -> str:
    """The first wrong cases, with their inputs; all others folded."""
    first = [c for c in shown if not c["right"]][:SHOWN_AT_ONCE] or shown[:SHOWN_AT_ONCE]
    others = [c for c in shown if c not in first]
    table = f"<table><tr><th>case<th>verdict{''.join(map(_case, first))}</table>"
    if not others:
        return table
    right = sum(c["right"] for c in others)
    said = f"{_counted(len(others), 'other case')}: {right} right, {len(others) - right} not"
    folded = f"<table><tr><th>case<th>verdict{''.join(map(_case, others))}</table>"
    return f"{table}<details><summary>{said}</summary>{folded}</details>"


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _case(c: Record) -> str:
    verdict = (
        "<span class=right>right</span>"
        if c["right"]
        else f"<span class=wrong>{prose(c['message'])}</span>"
    )
    asked = c.get("inputs", "")
    ran = f"<tr><td colspan=2><pre tabindex=0>{text(asked)}</pre>" if asked else ""
    return f"<tr{' class=asked' * bool(asked)}><td>{text(c['case'])}<td>{verdict}{ran}"


def index_page(records: Iterable[Record]) -> str:
    """The list of all submissions."""
    return _index([_row(r) for r in records])


def _row(r: Record) -> str:
    status = STATUS_WORDS[r["status"]] + ("" if r["official"] else "; not official")
    return (
        f'<tr><td><a href="{page_name(r["file"])}">{text(r["file"])}</a><td>{text(r["topic"])}<td'
        f" class=n>{points(r)}"
        f"<td>{text(status)}<td class=n>{len(r['flags']) or ''}"
    )


def _index(rows: list[str]) -> str:
    head = "<tr><th>submission<th>topic<th>points<th>status<th>flags"
    return standalone(
        "Results",
        f"<h1>Results</h1><p>{_counted(len(rows), 'submission')}.</p><table>{head}{''.join(rows)}</table>",
    )


def standalone(title: str, body: str, style: str = "", mark: str = "") -> str:
    """A page that needs nothing else and may run nothing. `title` is text, `body` is HTML, `style`
    is added to the common one."""
    made_from = f'<meta name="made-from" content="{mark}">' if mark else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{made_from}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src'
        " 'unsafe-inline'\">"
        f"<title>{text(title)}</title><style>{STYLE}{style}</style></head>\n<body><main>\n{body}\n</main></body></html>\n"
    )
