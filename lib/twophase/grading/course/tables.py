"""The files beside course.yml: the roster, scores given by hand, times of handing in, overrides.
Read strictly: a mistake is a sentence."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, TypeVar
from zoneinfo import ZoneInfo

from pydantic import ConfigDict, PlainValidator

from twophase.grading.course import fields
from twophase.grading.course.deadlines import read_time
from twophase.grading.course.fields import absent, nearest
from twophase.grading.course.values import Text, number, text

T = TypeVar("T")
DIGEST = re.compile(r"[0-9a-f]{12,64}")
# our name of a column: the names that it has in exports of Canvas, Moodle (participants, grading
# worksheet), Gradescope and nbgrader
COLUMNS = {
    "student": ("student id",),
    "name": ("full name", "fullname"),
    "first": ("first name", "firstname", "first_name"),
    "last": ("last name", "surname", "lastname", "last_name"),
    "email": ("email address", "e-mail"),
    "username": ("user name",),
    "id_number": ("id number", "idnumber", "sid"),
    "participant": ("identifier",),
    "canvas_id": ("id",),
    "sis_user_id": ("sis user id",),
    "sis_login_id": ("sis login id",),
    "section": ("sections",),
}


@dataclass(frozen=True)
class Student:
    """A student: the name that their files carry, and what learning platforms call them. `raw` is
    their line of the roster."""

    key: str
    name: str = ""
    email: str = ""
    username: str = ""
    id_number: str = ""
    canvas_id: str = ""
    participant: str = ""  # Moodle's number of a student in one assignment
    sis_user_id: str = ""
    sis_login_id: str = ""
    section: str = ""
    raw: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def shown(self) -> str:
        return self.name or self.key


@dataclass(frozen=True)
class Row:
    """A line of a CSV file."""

    where: str
    cells: Mapping[str, str]

    def need(self, column: str, convert: Callable[[str], T]) -> T:
        """The converted cell. Raises ValueError with the line and the column."""
        try:
            return convert(self.cells[column])
        except ValueError as e:
            raise ValueError(f"{self.where}: {column}: {e}") from None


def read_csv(path: Path) -> tuple[list[str], list[Row]]:
    """Header and rows of a CSV file, comma, semicolon or tab separated. Raises ValueError."""
    try:
        data = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text; save it as CSV UTF-8") from None
    first = data.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(data, newline=""), delimiter=delimiter, strict=True)
    try:
        lines = [(reader.line_num, [c.strip() for c in line]) for line in reader]
    except csv.Error as e:
        raise ValueError(f"{path}, line {reader.line_num}: {e}") from None
    lines = [(n, cells) for n, cells in lines if any(cells)]
    if not lines:
        raise ValueError(f"{path} is empty")
    (_, header), *rest = lines
    for n, cells in rest:
        if len(cells) > len(header):
            raise ValueError(f"{path}, line {n}: {len(cells)} cells under {len(header)} columns")
    if len(set(header)) < len([h for h in header if h]) + ("" in header):
        raise ValueError(f"{path}: two columns have the same name")
    return header, [
        Row(f"{path}, line {n}", dict(zip_longest(header, cells, fillvalue="")))
        for n, cells in rest
    ]


def read_roster(path: Path, key: str = "") -> list[Student]:
    """The students in a roster: our columns, or Canvas's export of grades, or Moodle's of
    participants. Raises ValueError."""
    header, rows = read_csv(path)
    canvas = "Student" in header and "ID" in header
    ours = _our_columns(header, canvas)
    column = key or _key_column(ours, rows, canvas)
    if column not in header:
        unnamed = "there is no column student; name one with files.roster.key"
        raise ValueError(f"{path}: {absent('column', key, header) if key else unnamed}")
    found: dict[str, Student] = {}
    for row in rows:
        if canvas and (row.cells["Student"] == "Points Possible" or not row.cells["ID"]):
            continue  # not a student: Canvas's second and third lines
        name = row.need(column, text)
        if name in found:
            raise ValueError(f"{row.where}: {name!r} is there twice")
        cells = {k: row.cells[h] for k, h in ours.items() if k not in ("student", "first", "last")}
        cells |= {"participant": _number(cells["participant"])} if "participant" in cells else {}
        first, last = (row.cells.get(ours.get(name, ""), "") for name in ("first", "last"))
        whole = f"{first} {last}".strip()
        found[name] = Student(**{"name": whole} | cells | {"key": name}, raw=row.cells)
    if not found:
        raise ValueError(f"{path} has no students")
    return list(found.values())


def _key_column(ours: Mapping[str, str], rows: Sequence[Row], canvas: bool) -> str:
    """The column that tells students apart, if none was named: the usual one, else the first that
    everybody has something in."""
    usual = ours.get("student") or (ours.get("sis_login_id") if canvas else ours.get("username"))
    # Gradescope's, nbgrader's
    ids = "id_number" if ours.get("id_number", "").lower() in ("sid", "id") else ""
    others = [ours[c] for c in (ids, "email", "participant") if c in ours]
    return usual or next((h for h in others if rows and all(r.cells[h] for r in rows)), "")


def _number(identifier: str) -> str:
    """`12345` of Moodle's `Participant 12345`, in any language."""
    return identifier.rpartition(" ")[2]


def _our_columns(header: list[str], canvas: bool) -> dict[str, str]:
    """Our name of a column to its name in this file."""
    ours = {}
    for ours_name, others in COLUMNS.items():
        wanted = (ours_name, ours_name.replace("_", " "), *others)
        here = next((h for h in header if h.lower() in wanted), None)
        if here is not None:
            ours[ours_name] = here
    if canvas:
        ours["name"] = ours.pop("student", "Student")
    elif ours.get("canvas_id", "").lower() == "id" and "id_number" not in ours:
        ours["id_number"] = ours.pop("canvas_id")
    return ours


@dataclass(frozen=True)
class HandScore:
    """Points for one cell graded by hand. With `submission`, for that version of the work only."""

    who: str
    exercise: str
    points: Fraction
    comment: str = ""
    submission: str = ""
    where: str = ""


def read_manual(path: Path) -> list[HandScore]:
    """Columns student, exercise, points, and if wanted comment and submission. A row without points
    is not graded yet."""
    header, rows = read_csv(path)
    _columns(path, header, ("student", "exercise", "points"), ("comment", "submission"))
    found: dict[tuple[str, str, str], HandScore] = {}
    for row in rows:
        if not row.cells["points"]:
            continue
        digest = row.cells.get("submission", "")
        if digest and not DIGEST.fullmatch(digest):
            raise ValueError(
                f"{row.where}: submission: {digest!r} is no digest of 12 or more hexadecimal digits"
            )
        who, exercise = row.need("student", text), row.need("exercise", text)
        points, comment = row.need("points", number), row.cells.get("comment", "")
        key = (who, exercise, digest)
        if key in found:
            before = found[key].where
            raise ValueError(f"{row.where}: {who} has points for {exercise} already ({before})")
        found[key] = HandScore(who, exercise, points, comment, digest, row.where)
    return list(found.values())


def _columns(path: Path, header: list[str], needed: tuple[str, ...], more: tuple[str, ...]) -> None:
    for column in needed:
        if column not in header:
            raise ValueError(f"{path}: there is no column {column}; it needs {', '.join(needed)}")
    for column in header:
        if column not in (*needed, *more):
            raise ValueError(
                f"{path}: there is no use for a column"
                f" {column!r}{nearest(column, (*needed, *more))}"
            )


def read_times(path: Path, zone: ZoneInfo) -> dict[str, datetime]:
    """When each file was handed in: columns file (or the submission's digest) and submitted."""
    header, rows = read_csv(path)
    by = "submission" if "submission" in header else "file"
    _columns(path, header, (by, "submitted"), ())
    found: dict[str, datetime] = {}
    for row in rows:
        name = row.need(by, text)
        if name in found:
            raise ValueError(f"{row.where}: {name} is there twice")
        found[name] = row.need("submitted", lambda v: read_time(v, zone))
    return found


@dataclass(frozen=True)
class Override:
    """Points that replace what the grader found, for one exercise of a submission, or (exercise "")
    for the whole of it."""

    digest: str
    exercise: str
    points: Fraction
    because: str
    where: str


@dataclass(frozen=True)
class Decision:
    """What somebody decided about an exercise, or the whole, of a submission."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    points: Annotated[Fraction, PlainValidator(number)]
    because: Text


def read_overrides(path: Path) -> list[Override]:
    """Submission's digest (12 digits or more) to exercise (or `all`) to points and because. Raises
    ValueError."""
    decisions = fields.read(Mapping[str, Mapping[str, Decision]], path)  # type: ignore[type-abstract]
    mistakes = [
        f"{digest}: is no digest of 12 or more lower-case hexadecimal digits"
        for digest in decisions
        if not DIGEST.fullmatch(digest)
    ] + [
        f"{digest}: begins another digest of this file; write more of its digits"
        for digest in sorted(decisions)
        if any(digest != d and d.startswith(digest) for d in decisions)
    ]
    if mistakes:
        raise ValueError("\n".join(f"{path}: {m}" for m in mistakes))
    found = []
    for digest, parts in decisions.items():
        for exercise, said in parts.items():
            of, where = "" if exercise == "all" else exercise, f"{path}: {digest}.{exercise}"
            found.append(Override(digest, of, said.points, said.because, where))
    return found
