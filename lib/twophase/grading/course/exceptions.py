"""What course.yml says of one person: more time, or an exercise that need not be done."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from twophase.grading.course.deadlines import Due, read_due, read_duration
from twophase.grading.course.fields import Fields, text
from twophase.grading.course.scheme import Excusal, Extension


def _who(fields: Fields) -> tuple[str, str]:
    for key in ("student", "assignment"):
        if key not in fields:
            fields.wrong(key, "is missing")
    return fields.get("student", text, ""), fields.get("assignment", text, "")


def extension(fields: Fields, zone: ZoneInfo) -> Extension:
    who, topic = _who(fields)
    until: Due | None = fields.get("until", lambda v: read_due(text(v), zone), None)
    by = fields.get("by", lambda v: read_duration(text(v)), None)
    if ("until" in fields) == ("by" in fields):
        fields.wrong("", "needs either until (a time) or by (a duration)")
    found = Extension(who, topic, until, by, fields.get("because", text, ""), fields.path)
    fields.done()
    return found


def excusal(fields: Fields) -> Excusal:
    who, topic = _who(fields)
    found = Excusal(
        who, topic, fields.get("exercise", text, ""), fields.get("because", text, ""), fields.path
    )
    fields.done()
    return found
