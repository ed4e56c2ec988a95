"""The report on near-identical answers, as one HTML file that stands by itself. Every text of a
student's is escaped."""

from __future__ import annotations

from collections.abc import Sequence

from twophase.grading.reports.class_report import PRINT
from twophase.grading.reports.feedback import standalone, text
from twophase.grading.similar import fragments
from twophase.grading.similar.groups import Agreement, Group, Trace
from twophase.grading.similar.pairs import COMMON, ENOUGH, Answer, Compared
from twophase.grading.similar.report import CAVEAT, Report

MOST_CODES, MOST_LINES, MOST_MARKS, MOST_NAMES = 4, 150, 12, 30
LOOK = """
.code { font: .8rem/1.45 ui-monospace, monospace; background: var(--box); border: 1px solid var(--line); margin: 0; padding: .4rem 0;
  white-space: pre-wrap; max-height: none; }
.code span { display: block; padding: 0 .5rem 0 1.7rem; text-indent: -1.2rem; min-height: 1.45em; border-left: 3px solid transparent; }
.code span::before { content: "\\00a0\\00a0"; color: var(--soft); } .code .same { border-color: var(--note); }
.code .same::before { content: "=\\00a0"; color: var(--note); font-weight: bold; } .code .shown { color: var(--soft); }
.code .shown::before { content: "\\00b7\\00a0"; } figcaption { font-size: .9rem; padding: .2rem 0; }
h3 { font-size: 1rem; margin: 1.4rem 0 .2rem; }
td { min-width: 7rem; } td.n { min-width: 0; }
section { border-top: 2px solid var(--line); margin-top: 2rem; } .caveat { border-left: 4px solid var(--note); padding-left: .8rem; }
@media print { .code { border-color: #999; } section { break-before: auto; } }
"""
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
    parts = [
        "<h1>Near-identical answers</h1>",
        f"<p class=caveat><strong>{text(CAVEAT)}</strong> {_how(found)}</p>",
    ]
    parts.append(f"<p>{text(summary(found))}</p>")
    parts += [_group(n, g, found) for n, g in enumerate(found.groups, 1)]
    parts += (
        [f"<p>{found.crowded} more groups, weaker than these, are not told.</p>"]
        if found.crowded
        else []
    )
    parts += [_exercises(found), _crowds(found), _unreadable(found)]
    return standalone("Near-identical answers", "\n".join(p for p in parts if p), PRINT + LOOK)


def summary(found: Report) -> str:
    """One or two sentences on what was compared and what came of it."""
    students = len({p.party for p in found.papers})
    said = f"{len(found.papers)} notebooks of {students} students or teams were compared"
    said += f", {len(found.unreadable)} could not be read. " if found.unreadable else ". "
    n = len(found.groups) + found.crowded
    return said + (f"{n} group{'s' * (n != 1)} to look at." if n else "Nothing to look at.")


def follows_sentence(one: Compared) -> str:
    """What is to say of an exercise whose answers follow the published solution, or an empty
    text."""
    n = len(one.follows)
    if not n:
        return ""
    many = one.answers - len(one.empty)
    who = (
        f"All {many} answers follow"
        if n == many > 1
        else f"{n} of {many} answers follow{'s' * (n == 1)}"
    )
    return f"{who} the published solution; what they share with it is not counted between students."


def _how(found: Report) -> str:
    return (
        "Compared is the code without comments, names, types, layout and the order of statements."
        " What the course gives out or publishes is taken out first: the released cells, the model"
        " solution, the chapter, the library. Of what is left, a fragment (a few steps of one"
        " statement) counts the more the fewer others wrote it, and not at all once"
        f" {100 * COMMON:.0f}% of them did. A pair is listed if at least {100 * found.least:.3g}"
        " %, by weight, of the rarer fragments of one answer are in the other; of the two, the one"
        " that has less. How often independent answers agree as much in your class is not known,"
        " so no probability is given. In the code, “=” marks a line whose rarer fragments are in"
        " another answer shown, and “·” one that the course shows too."
    )


def _group(n: int, g: Group, found: Report) -> str:
    parts = [
        f"<section><h2>Group {n}:"
        f" {text(', '.join(g.names[:MOST_NAMES]))}{_more(len(g.names) - MOST_NAMES)}</h2>"
    ]
    parts.append(f"<p class=soft>{text(g.topic)}; {text(', '.join(g.files[:MOST_NAMES]))}</p>")
    if g.agreements:
        rows = "".join(_pair_row(a, i) for a in g.agreements for i in range(len(a.pairs)))
        head = (
            "<tr><th scope=col>exercise<th scope=col>answers<th scope=col class=n>rarer fragments"
            " the same<th scope=col class=n>others who have half of these"
        )
        parts.append(_wide(f"<thead>{head}</thead><tbody>{rows}</tbody>", f"Group {n}: pairs"))
        left = sum(a.n_pairs - len(a.pairs) for a in g.agreements)
        parts.append(f"<p class=soft>And {left} more pairs in this group.</p>" if left else "")
    parts += [_traces(g.traces, n), *(_codes(a, found) for a in g.agreements)]
    return "\n".join(p for p in parts if p) + "</section>"


def _more(n: int) -> str:
    return f" and {n} more" if n > 0 else ""


def _pair_row(a: Agreement, i: int) -> str:
    p = a.pairs[i]
    return (
        f"<tr><td>{text(a.exercise.title)}<td>{text(p.a.file)}<br>{text(p.b.file)}<td"
        f" class=n>{p.same} of {p.rarer}<br>{100 * p.share:.0f}% by weight<td"
        f" class=n>{a.others[i]}"
    )


def _traces(traces: Sequence[Trace], group: int) -> str:
    if not traces:
        return ""
    together: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for t in sorted(
        traces, key=lambda t: (not t.mark.strong, list(KINDS).index(t.mark.kind), t.mark.text)
    ):
        together.setdefault((t.mark.kind, t.files), []).append(t.mark.text)
    rows = "".join(
        _trace(kind, files, texts) for (kind, files), texts in list(together.items())[:MOST_MARKS]
    )
    left = len(together) - MOST_MARKS
    head = "<tr><th scope=col>what<th scope=col>it is<th scope=col>files"
    table = _wide(
        f"<thead>{head}</thead><tbody>{rows}</tbody>",
        f"Group {group}: also the same, in few or no other files",
    )
    return table + (f"<p class=soft>And {left} more such lines.</p>" if left > 0 else "")


def _trace(kind: str, files: Sequence[str], texts: Sequence[str]) -> str:
    shown = [] if kind == "file" else [f"<code>{text(t)}</code>" for t in texts[:MOST_MARKS]]
    where = "<br>".join(text(f) for f in files[:MOST_CODES])
    more = _more(len(texts) - MOST_MARKS) if shown else ""
    return f"<tr><td>{KINDS[kind]}<td>{'<br>'.join(shown)}{more}<td>{where}{_more(len(files) - MOST_CODES)}"


def _wide(rows: str, caption: str) -> str:
    """A table that scrolls by itself where the page is narrow, with the keyboard too."""
    inside = f"<table><caption>{text(caption)}</caption>{rows}</table>"
    return f'<div class=wide tabindex=0 role=region aria-label="{text(caption)}">{inside}</div>'


def _codes(a: Agreement, found: Report) -> str:
    """The code of a group's answers side by side, first those of the strongest pairs."""
    answers = list(dict.fromkeys(x for p in a.pairs for x in (p.a, p.b)))[:MOST_CODES]
    figures = "".join(_code(x, answers, a.exercise, found) for x in answers)
    return (
        f"<h3>{text(a.exercise.title)} <span class=soft>{text(a.exercise.id)}</span></h3><div"
        f" class=pair>{figures}</div>"
    )


def _code(answer: Answer, beside: Sequence[Answer], one: Compared, found: Report) -> str:
    marks = line_marks(answer, [b for b in beside if b is not answer], one, found)
    lines = answer.source[: fragments.MAX_TEXT].split("\n")
    spans = "".join(
        f"<span{f' class={marks[n]}' if n in marks else ''}>{text(line[:400])}</span>"
        for n, line in enumerate(lines[:MOST_LINES], 1)
    )
    left = len(lines) - MOST_LINES
    more = f"<p class=soft>And {left} more lines.</p>" if left > 0 else ""
    return (
        f"<figure><figcaption>{text(answer.file)}</figcaption><pre"
        f" class=code>{spans}</pre>{more}</figure>"
    )


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


def _exercises(found: Report) -> str:
    rows = [_exercise(c) for c in found.exercises if c.answers]
    if not rows:
        return ""
    head = (
        "exercise",
        "answers",
        "not written",
        "too short to say anything",
        "follow the published solution",
        "pairs listed",
    )
    cells = "".join(f"<th scope=col{' class=n' * (n > 0)}>{h}" for n, h in enumerate(head))
    said = [f"{c.title}: {s}" for c in found.exercises if (s := follows_sentence(c))]
    notes = "".join(f"<li>{text(s)}" for s in said)
    caption = f"Too short: fewer than {ENOUGH} rarer fragments, about three lines of one's own."
    table = _wide(f"<thead><tr>{cells}</thead><tbody>{''.join(rows)}</tbody>", caption)
    return f"<h2>All exercises</h2>{table}" + (f"<ul>{notes}</ul>" if notes else "")


def _exercise(c: Compared) -> str:
    numbers = (c.answers, len(c.empty), len(c.short), len(c.follows), len(c.pairs))
    return f"<tr><td>{text(c.title)}<br><span class=soft>{text(c.id)}</span>" + "".join(
        f"<td class=n>{n or ''}" for n in numbers
    )


def _crowds(found: Report) -> str:
    """Answers that too many have: told, and not held against anybody."""
    parts = [
        f"<h3>{text(c.title)}: {len(w.files)} files</h3><pre"
        f" class=code>{text(w.source[:2000])}</pre>"
        for c in found.exercises
        for w in c.crowds
    ]
    if not parts:
        return ""
    said = (
        "These are the same but for names, and so common that they say nothing about any two."
        " Perhaps they have one source."
    )
    return f"<h2>Common answers</h2><p>{said}</p>" + "".join(parts)


def _unreadable(found: Report) -> str:
    rows = "".join(f"<li>{text(file)}: {text(why)}" for file, why in found.unreadable)
    return f"<h2>Not read</h2><ul>{rows}</ul>" if rows else ""
