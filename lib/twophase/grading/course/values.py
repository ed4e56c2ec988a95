"""How each kind of value in a file of a course is written: what it is for a program, or a sentence
on what is wrong with it."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo, available_timezones

from pydantic import PlainValidator, ValidationInfo

from twophase.grading.course.deadlines import Due, Duration, read_due, read_duration
from twophase.grading.course.fields import Value, nearest, shown

UTC = ZoneInfo("UTC")
# Canvas skips these
NO_TITLE = re.compile(r"(?:Current|Final) (?:Score|Points|Grade)|Override (?:Score|Grade|Status)")
TOPIC = re.compile(r"[A-Za-z0-9_-]{1,80}")


def text(value: Value) -> str:
    """Text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected text, found {'nothing' if value == '' else shown(value)}")
    return value.strip()


def matching(value: Value, pattern: str, otherwise: str) -> str:
    """Text of this pattern. Raises ValueError, with the text and what to write `otherwise`."""
    said = text(value)
    if not re.fullmatch(pattern, said):
        raise ValueError(f"{said!r} is {otherwise}")
    return said


def number(value: Value) -> Fraction:
    """A number of points: not negative, finite, exact."""
    otherwise = "no number of points; write one such as 4 or 2.5"
    return Fraction(matching(value, r"[0-9]{1,6}(?:\.[0-9]{1,6})?", otherwise))


def positive(value: Value) -> Fraction:
    """Points that can be earned."""
    found = number(value)
    if found == 0:
        raise ValueError("0 points cannot be earned; leave it out, or give it points")
    return found


def whole(value: Value) -> int:
    return int(matching(value, "[0-9]{1,4}", "no whole number; write one such as 1"))


def percent(value: Value) -> Fraction:
    """`10%`, from 0 to 100. The sign is required: 0.1 and 10 could both be meant."""
    said = text(value)
    if not said.endswith("%"):
        raise ValueError(f"{said!r} is no percentage; write it with its sign, such as 10%")
    try:
        found = number(said.removesuffix("%").strip()) / 100
    except ValueError:
        raise ValueError(f"{said!r} is no percentage; write one such as 10%") from None
    if found > 1:
        raise ValueError(f"{said} is more than 100%")
    return found


def yes_or_no(value: Value) -> bool:
    """Not 1 or 0: whoever writes them may mean points."""
    if str(value).lower() not in ("yes", "no", "true", "false"):
        raise ValueError(f"{shown(value)} is neither yes nor no")
    return str(value).lower() in ("yes", "true")


def names(value: Value) -> tuple[str, ...]:
    """A list of names without repetition, at least one."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"expected a list of names such as [ann, bob], found {shown(value)}")
    found = tuple(text(v) for v in value)
    twice = [n for n in found if found.count(n) > 1]
    if twice:
        raise ValueError(f"{twice[0]!r} is there twice")
    return found


def due(value: Value, info: ValidationInfo[dict[str, Any]]) -> Due:
    return read_due(text(value), info.context["zone"] or UTC)


def zone(value: Value, info: ValidationInfo[dict[str, Any]]) -> ZoneInfo:
    """The course's time zone; all times below are in it."""
    name = text(value)
    if name not in available_timezones():
        meant = nearest(name, available_timezones(), most=0) if "/" in name else ""
        raise ValueError(
            f"there is no time zone {name!r}{meant or ';'} write an IANA name such as Europe/Berlin"
        )
    info.context["zone"] = ZoneInfo(name)
    return ZoneInfo(name)


def topic(value: Value) -> str:
    if not TOPIC.fullmatch(value):
        only = "has letters, digits, _ and - only; for people there is `title`"
        raise ValueError(f"the name of a notebook's topic {only}")
    return str(value)


def title(value: Value) -> str:
    said = text(value)
    if NO_TITLE.search(said):
        raise ValueError(f"Canvas takes {said!r} for a column of its own; choose another title")
    return said


def canvas_number(value: Value) -> str:
    where = "it ends the assignment's address, /assignments/12345"
    otherwise = f"not the number that Canvas has for the assignment; {where}"
    return matching(value, "[0-9]+", otherwise)


def whose(value: Value) -> re.Pattern[str] | str:
    said = text(value)
    if said in ("folder", "file"):
        return said
    try:
        pattern = re.compile(said)
    except RecursionError:
        raise ValueError("the pattern has too many parentheses within parentheses") from None
    except (re.error, OverflowError) as e:
        raise ValueError(
            f"{said!r} is neither folder nor file nor a regular expression ({e})"
        ) from None
    if "student" not in pattern.groupindex:
        lacks = "as a pattern it has no group (?P<student>...)"
        raise ValueError(f"{said!r} is neither folder nor file, and {lacks}")
    return pattern


def beside(value: Value, info: ValidationInfo[dict[str, Any]]) -> Path:
    """A file beside course.yml."""
    path: Path = info.context["folder"] / text(value)
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    return path


Text = Annotated[str, PlainValidator(text)]
Points = Annotated[Fraction, PlainValidator(positive)]
Share = Annotated[Fraction, PlainValidator(percent)]
Whole = Annotated[int, PlainValidator(whole)]
YesNo = Annotated[bool, PlainValidator(yes_or_no)]
Names = Annotated[tuple[str, ...], PlainValidator(names)]
Deadline = Annotated[Due, PlainValidator(due)]
Beside = Annotated[Path, PlainValidator(beside)]
TimeZone = Annotated[ZoneInfo, PlainValidator(zone)]
Span = Annotated[Duration, PlainValidator(lambda value: read_duration(text(value)))]
Topic = Annotated[str, PlainValidator(topic)]
Title = Annotated[str, PlainValidator(title)]
CanvasNumber = Annotated[str, PlainValidator(canvas_number)]
Whose = Annotated[re.Pattern[str] | str, PlainValidator(whose)]
