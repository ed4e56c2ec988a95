"""The roster: who is in the class, and what learning platforms call them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from twophase.grading.course.csv_reading import Row, read_csv
from twophase.grading.course.fields import absent
from twophase.grading.course.values import text

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
    """A student: the name of their files, and what platforms call them. `raw`: their whole line."""

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


def read_roster(path: Path, key: str = "") -> list[Student]:
    """The students in a roster: our columns, or Canvas's export of grades, or Moodle's of
    participants. Raises ValueError."""
    header, rows = read_csv(path)
    canvas = "Student" in header and "ID" in header
    ours = _our_columns(header, canvas)
    column = key or _key_column(ours, rows, canvas)
    if not column or column not in header:  # a header that ends in a comma has a column ""
        unnamed = "there is no column student in its first line; name one with files.roster.key"
        raise ValueError(f"{path}: {absent('column', key, header) if key else unnamed}")
    found: dict[str, Student] = {}
    for row in rows:
        if canvas and (row.cells["Student"] == "Points Possible" or not row.cells["ID"]):
            continue  # not a student: Canvas's second and third lines
        name = row.need(column, text)
        if name in found:
            raise ValueError(f"{row.where}: {name!r} is there twice")
        cells = {k: row.cells[h] for k, h in ours.items() if k not in ("student", "first", "last")}
        if "participant" in cells:  # `12345` of Moodle's `Participant 12345`, in any language
            cells["participant"] = cells["participant"].rpartition(" ")[2]
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
