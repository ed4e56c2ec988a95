"""The report on near-identical answers as similar.html (a page by itself) and similar.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from markupsafe import Markup

from twophase.grading.reports.pages import render
from twophase.grading.reports.printable import printable
from twophase.grading.similar import fragments
from twophase.grading.similar.class_comparison import Report
from twophase.grading.similar.groups import Agreement, SimilarGroup, Trace
from twophase.grading.similar.pairs import COMMON, ENOUGH, Answer, Compared

SCHEMA = 1
CAVEAT = "Agreement is a reason to talk to people, not a finding."
MOST_CODES, MOST_MARKS = 4, 12
TWO_LINES, TITLED = Markup("{}<br>{}"), Markup("{}<br><span class=soft>{}</span>")
CODE = Markup("<code>{}</code>")
KINDS = {
    "file": "the file, byte by byte",
    "cell": "id of an added cell, drawn at random",
    "metadata": "what its metadata says",
    "person": "another student's name in the metadata",
    "comment": "comment",
    "text": "text",
    "name": "name, chosen freely",
    "spacing": "a line with its odd spacing",
}


def page(found: Report) -> str:
    """The report, as one HTML file."""
    there = [c for c in found.exercises if c.answers]
    return render(
        "similar/page.html",
        found=found,
        caveat=CAVEAT,
        common_share=100 * COMMON,
        summary=summary(found),
        pair_rows=_pair_rows,
        trace_rows=_trace_rows,
        codes=partial(_codes, found=found),
        exercises=[_exercise_row(c) for c in there],
        short=f"Too short: fewer than {ENOUGH} rarer fragments, about three lines of one's own.",
        follows=[f"{c.title}: {s}" for c in found.exercises if (s := follows_sentence(c))],
        common=[(c.title, len(w.files), w.source) for c in found.exercises for w in c.common],
    )


def summary(found: Report) -> str:
    """One or two sentences on what was compared and what came of it."""
    students = len({p.party for p in found.notebooks})
    said = f"{len(found.notebooks)} notebooks of {students} students or teams were compared"
    said += f", {len(found.unreadable)} could not be read. " if found.unreadable else ". "
    n = len(found.groups) + found.groups_left_out
    return said + (f"{n} group{'s' * (n != 1)} to look at." if n else "Nothing to look at.")


def follows_sentence(one: Compared) -> str:
    """What to say of answers that follow the published solution; empty if none does."""
    n, many = len(one.follows), one.answers - len(one.empty)
    if not n:
        return ""
    who = f"{n} of {many} answers follow{'s' * (n == 1)}"
    if n == many > 1:
        who = f"All {many} answers follow"
    return f"{who} the published solution; what they share with it is not counted between students."


def _pair_rows(g: SimilarGroup) -> list[list[object]]:
    """For each pair: exercise, both files, how much is the same, how many others have it."""
    return [
        [
            a.exercise.title,
            TWO_LINES.format(printable(p.a.file), printable(p.b.file)),
            TWO_LINES.format(f"{p.same} of {p.rarer}", f"{100 * p.share:.0f}% by weight"),
            others,
        ]
        for a in g.agreements
        for p, others in zip(a.pairs, a.others, strict=True)
    ]


def _trace_rows(traces: Sequence[Trace]) -> list[list[object]]:
    """A line for each kind of trace and set of files, the strongest first."""
    kinds = list(KINDS)
    together: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    order = sorted(traces, key=lambda t: (not t.mark.strong, kinds.index(t.mark.kind), t.mark.text))
    for t in order:
        together.setdefault((t.mark.kind, t.files), []).append(t.mark.text)
    return [
        [
            KINDS[kind],
            "" if kind == "file" else _some([CODE.format(printable(t)) for t in texts], MOST_MARKS),
            _some(list(map(printable, files)), MOST_CODES),
        ]
        for (kind, files), texts in together.items()
    ]


def _some(there: Sequence[object], most: int) -> Markup:
    """The first of them, each on a line, and how many more there are."""
    more = f" and {len(there) - most} more" if len(there) > most else ""
    return Markup("<br>").join(there[:most]) + more  # type: ignore[arg-type]


def _codes(a: Agreement, found: Report) -> list[tuple[str, list[tuple[str, str]]]]:
    """The code of the strongest pairs' answers, to stand side by side: each line with its mark."""
    answers = list(dict.fromkeys(x for p in a.pairs for x in (p.a, p.b)))[:MOST_CODES]
    shown = []
    for answer in answers:
        marks = line_marks(answer, [b for b in answers if b is not answer], a.exercise, found)
        lines = answer.source[: fragments.MAX_TEXT].split("\n")
        shown.append((answer.file, [(marks.get(n, ""), s) for n, s in enumerate(lines, 1)]))
    return shown


def line_marks(
    answer: Answer, beside: Sequence[Answer], one: Compared, found: Report
) -> dict[int, str]:
    """By line: `same` if half of the rarer fragments of its statement are in another answer shown,
    `shown` if all are the course's."""
    others = frozenset(f for b in beside for f in fragments.fragments_of(b.source).fragments)
    published = found.known[one.topic].published if one.topic in found.known else frozenset()
    marks: dict[int, str] = {}
    for s in fragments.fragments_of(answer.source).statements:
        rarer = [f for f in s.fragments if one.weights.get(f, 0) > 0]
        if rarer and 2 * sum(f in others for f in rarer) >= len(rarer):
            kind = "same"
        elif s.fragments and s.fragments <= published:
            kind = "shown"
        else:
            continue
        marks |= {n: kind for n in range(s.first, s.last + 1) if marks.get(n) != "same"}
    return marks


def _exercise_row(c: Compared) -> list[object]:
    numbers = (c.answers, len(c.empty), len(c.short), len(c.follows), len(c.pairs))
    return [TITLED.format(printable(c.title), c.id), *(n or "" for n in numbers)]


def as_json(found: Report) -> dict[str, Any]:
    """The report as plain data; grading/README.md lists the fields."""
    return {
        "schema": SCHEMA,
        "caveat": CAVEAT,
        "least": found.least,
        "notebooks": len(found.notebooks),
        "unreadable": [{"file": f, "message": m} for f, m in found.unreadable],
        "groups": [_group_json(g) for g in found.groups],
        "groups_left_out": found.groups_left_out,
        "exercises": [_exercise_json(c) for c in found.exercises if c.answers],
    }


def _group_json(g: SimilarGroup) -> dict[str, Any]:
    return {
        "topic": g.topic,
        "students": [list(p) for p in g.parties],
        "files": list(g.files),
        "exercises": [
            {
                "id": a.exercise.id,
                "pairs_in_all": a.n_pairs,
                "pairs": [
                    {
                        "files": [p.a.file, p.b.file],
                        "same": p.same,
                        "rarer": p.rarer,
                        "share": round(p.share, 4),
                        "others": n,
                    }
                    for p, n in zip(a.pairs, a.others, strict=True)
                ],
            }
            for a in g.agreements
        ],
        "traces": [asdict(t.mark) | {"files": list(t.files)} for t in g.traces],
    }


def _exercise_json(c: Compared) -> dict[str, Any]:
    return {
        "id": c.id,
        "topic": c.topic,
        "answers": c.answers,
        "not_written": list(c.empty),
        "too_short": list(c.short),
        "follows_published": list(c.follows),
        "common": [list(w.files) for w in c.common],
        "not_python": list(c.unparsed),
        "cut": list(c.cut),
        "pairs": len(c.pairs),
        "comparisons": c.comparisons,
    }
