"""From course.yml to a Scheme. Every mistake in the file is told, each in one sentence with its
path."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Literal, cast
from zoneinfo import ZoneInfo, available_timezones

from twophase.grading.course.consistency import cross_mistakes
from twophase.grading.course.deadlines import LateRule, Of, read_due, read_duration
from twophase.grading.course.exceptions import excusal, extension
from twophase.grading.course.fields import (
    Fields,
    Value,
    names,
    nearest,
    number,
    one_of,
    percent,
    read_yaml,
    text,
    whole,
    yes,
)
from twophase.grading.course.scheme import (
    Assignment,
    CountsPolicy,
    ExerciseRule,
    Files,
    Group,
    Partial,
    RightAlonePolicy,
    Scheme,
    UnreadablePolicy,
)

TOPIC = re.compile(r"[A-Za-z0-9_-]{1,80}")
# Canvas skips these
NO_TITLE = re.compile(r"(?:Current|Final) (?:Score|Points|Grade)|Override (?:Score|Grade|Status)")


def read_course(path: Path) -> Scheme:
    """The scheme in a file. Raises ValueError with a line for every mistake in it."""
    mistakes: list[str] = []
    scheme = _scheme(Fields(read_yaml(path), "", mistakes), path)
    mistakes += cross_mistakes(scheme) if not mistakes else []
    if mistakes:
        raise ValueError("\n".join(f"{path}: {m}" for m in mistakes))
    return scheme


def _scheme(top: Fields, path: Path) -> Scheme:
    zone = top.get("time_zone", _zone, ZoneInfo("UTC"))
    late = _late(top, LateRule())
    share = _partial(top)
    sent = top.inner("submissions")
    student = sent.get(
        "student", _student, cast("re.Pattern[str] | Literal['folder', 'file']", "folder")
    )
    counts = cast(CountsPolicy, sent.get("counts", one_of("best", "latest"), "latest"))
    unreadable = cast(
        UnreadablePolicy, sent.get("unreadable", one_of("pending", "zero"), "pending")
    )
    right_alone = cast(
        RightAlonePolicy, sent.get("right_alone", one_of("counts", "pending"), "counts")
    )
    sent.done()
    inside = top.inner("assignments")
    assignments = inside.each(
        lambda key, value: _assignment(
            Fields(value, inside.at(key), top.mistakes), key, zone, late, share
        )
    )
    if "time_zone" not in top and any(a.due for a in assignments.values()):
        top.wrong("time_zone", "is missing; due dates need one, such as Europe/Berlin")
    scheme = Scheme(
        title=top.get("course", text, "Course"),
        zone=zone,
        assignments=assignments,
        counts=counts,
        unreadable=unreadable,
        right_alone=right_alone,
        student=student,
        drop_lowest=top.get("drop_lowest", whole, 0),
        groups=_groups(top),
        extensions=tuple(extension(f, zone) for f in top.rows("extensions")),
        excused=tuple(excusal(f) for f in top.rows("excused")),
        files=_files(top, path.parent),
        path=path,
    )
    top.done()
    if not assignments and not top.mistakes:
        top.wrong(
            "assignments", "there are none; name the notebooks that count, such as `kv_cache:`"
        )
    return scheme


def _zone(value: Value) -> ZoneInfo:
    name = text(value)
    if name not in available_timezones():
        meant = nearest(name, available_timezones()) if "/" in name else ""
        raise ValueError(
            f"there is no time zone {name!r}{meant}; "
            "write an IANA name such as Europe/Berlin".replace("?;", "?")
        )
    return ZoneInfo(name)


def _student(value: Value) -> re.Pattern[str] | Literal["folder", "file"]:
    said = text(value)
    if said in ("folder", "file"):
        return cast(Literal["folder", "file"], said)
    try:
        pattern = re.compile(said)
    except re.error as e:
        raise ValueError(
            f"{said!r} is neither folder nor file nor a regular expression ({e})"
        ) from None
    if "student" not in pattern.groupindex:
        raise ValueError(
            f"{said!r} is neither folder nor file, and as a pattern it has no group"
            " (?P<student>...)"
        )
    return pattern


def _late(fields: Fields, default: LateRule) -> LateRule:
    """The late rule; in an assignment it replaces the course's as a whole."""
    if "late" not in fields:
        return default
    inside = fields.inner("late")
    rule = LateRule(
        per_day=inside.get("per_day", percent, Fraction(0)),
        of=cast(Of, inside.get("of", one_of("earned", "possible"), "earned")),
        grace=inside.get("grace", lambda v: read_duration(text(v)), LateRule().grace),
        floor=inside.get("floor", percent, Fraction(0)),
        cutoff=inside.get("cutoff", lambda v: read_duration(text(v)), None),
    )
    inside.done()
    if rule.cutoff is not None and rule.cutoff.roughly < rule.grace.roughly:
        inside.wrong("cutoff", f"{rule.cutoff} is shorter than the grace, {rule.grace}")
    return rule


def _partial(fields: Fields, default: Partial | None = None) -> Partial:
    if "partial" not in fields:
        return default or Partial()
    inside = fields.inner("partial")
    named = inside.inner("misconceptions")
    found = Partial(inside.get("cases", percent, Fraction(0)), named.each(lambda _, v: percent(v)))
    inside.done()
    return found


def _assignment(
    fields: Fields, topic: str, zone: ZoneInfo, late: LateRule, share: Partial
) -> Assignment:
    title = fields.get("title", text, topic.replace("_", " "))
    if NO_TITLE.search(title):
        fields.wrong(
            "title", f"Canvas takes {title!r} for a column of its own; choose another title"
        )
    if not TOPIC.fullmatch(topic):
        fields.wrong(
            "",
            "the name of a notebook's topic has letters, digits, _ and - only; for people there is"
            " `title`",
        )
    share = _partial(fields, share)
    rule = partial(_exercise, fields, share, by_hand=False)
    by_hand = partial(_exercise, fields, share, by_hand=True)
    found = Assignment(
        topic=topic,
        title=title,
        due=fields.get("due", lambda v: read_due(text(v), zone), None),
        late=_late(fields, late),
        points=fields.get("points", _positive, None),
        exercises=_exercises(fields, "exercises", rule) if "exercises" in fields else None,
        by_hand=_exercises(fields, "by_hand", by_hand),
        partial=share,
        drop_lowest=fields.get("drop_lowest", whole, 0),
        canvas=fields.get("canvas", _canvas, ""),
    )
    for twice in set(found.exercises or ()) & set(found.by_hand):
        fields.wrong("by_hand", f"{twice!r} is under exercises too")
    if found.exercises is not None and all(
        e.extra for e in (*found.exercises.values(), *found.by_hand.values())
    ):
        fields.wrong(
            "exercises",
            "nothing here counts towards the maximum; name at least one that is not extra credit",
        )
    fields.done()
    return found


def _exercises(
    fields: Fields, key: str, rule: Callable[[str, Value], ExerciseRule]
) -> dict[str, ExerciseRule]:
    return fields.inner(key).each(rule)


def _exercise(
    fields: Fields, share: Partial, key: str, value: Value, *, by_hand: bool
) -> ExerciseRule:
    """`id: 4`, or `id:` with points, extra, title, partial below it."""
    if isinstance(value, str) and value:
        return ExerciseRule(points=_positive(value), partial=share, by_hand=by_hand)
    inside = Fields(
        value, f"{fields.at('by_hand' if by_hand else 'exercises')}.{key}", fields.mistakes
    )
    found = ExerciseRule(
        points=inside.get("points", _positive, None),
        partial=share if by_hand else _partial(inside, share),
        extra=inside.get("extra", yes, False),
        by_hand=by_hand,
        title=inside.get("title", text, ""),
    )
    if by_hand and found.points is None:
        inside.wrong("points", "is missing; a cell graded by hand has no check that knows them")
    inside.done()
    return found


def _positive(value: Value) -> Fraction:
    found = number(value)
    if found == 0:
        raise ValueError("0 points cannot be earned; leave it out, or give it points")
    return found


def _canvas(value: Value) -> str:
    said = text(value)
    if not (said.isascii() and said.isdigit()):
        raise ValueError(
            f"{said!r} is not the number that Canvas has for the assignment; it ends the"
            " assignment's address, /assignments/12345"
        )
    return said


def _groups(top: Fields) -> tuple[Group, ...]:
    inside = top.inner("groups")

    def group(key: str, value: Value) -> Group:
        if not isinstance(value, dict):
            return Group(key, names(value))
        one = Fields(value, inside.at(key), top.mistakes)
        found = Group(key, one.get("members", names, ()), one.get("assignments", names, ()))
        if "members" not in one:
            one.wrong("members", "is missing; write a list such as [ann, bob]")
        one.done()
        return found

    return tuple(inside.each(group).values())


def _files(top: Fields, folder: Path) -> Files:
    """Paths are relative to course.yml."""

    def near(value: Value) -> Path:
        path = folder / text(value)
        if not path.is_file():
            raise ValueError(f"there is no file {path}")
        return path

    inside = top.inner("files")
    roster, key = inside.get("roster", lambda v: v if isinstance(v, dict) else near(v), None), ""
    if isinstance(roster, dict):
        below = inside.inner("roster")
        roster, key = below.get("file", near, None), below.get("key", text, "")
        below.done()
    manual, overrides, times = (inside.get(k, near, None) for k in ("manual", "overrides", "times"))
    found = Files(roster, key, manual, overrides, times)
    inside.done()
    return found
