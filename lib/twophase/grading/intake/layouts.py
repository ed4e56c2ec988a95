"""How downloads of a class are laid out: whose a file is, and when it came, by a platform's names.

Only names that the platform or the instructor gave are believed, never those that a student chose:
below a student's own file or folder nothing is taken for a sign.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from twophase.grading.course.deadlines import is_meant
from twophase.grading.errors import Unreadable
from twophase.grading.intake import archives
from twophase.grading.intake.gradescope_export import METADATA, entries
from twophase.grading.intake.trees import Node

TITLES = {
    "gradescope": "Gradescope's",
    "canvas": "Canvas's",
    "moodle": "Moodle's",
    "nbgrader": "nbgrader's",
    "plain": "a plain",
}
# lastfirst_LATE_12345_67890_name.ipynb: the user's number and the file's; of an anonymous one (a
# mark of five letters) there is no number
CANVAS = re.compile(
    r"(?P<who>.+?)_(?:LATE_)?(?P<student>\d+)_(?:(?P<file>\d+)_.+|(?:link|text)\.html)", re.DOTALL
)
ANONYMOUS = re.compile(
    r"(?P<who>anon)_(?:LATE_)?(?P<student>[A-Za-z0-9]+)_(?P<file>\d+)_.+", re.DOTALL
)
# Full Name_12345_assignsubmission_file_, or without folders Full
# Name_12345_assignsubmission_file_name.ipynb
MOODLE = re.compile(r"(?P<who>.+?)_(?P<student>\d+)_assignsubmission_[a-z]+(?:_.*)?", re.DOTALL)
NBGRADER = re.compile(
    r"(?P<student>.+)\+(?P<assignment>[^+]+)\+(?P<time>\d{4}-\d\d-\d\d"
    r" \d\d:\d\d:\d\d[^+]*(?:\+\d{4})?)(?:\+[\w=-]+)?"
)
GRADESCOPE = re.compile(r"submission_\d+")
TIME = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?) ?(Z|UTC|GMT|[+-]\d\d:?\d\d)")
TRUSTED = re.compile(r"(?:submissions|assignment_\d+_export)(?: ?\(\d+\))?(?:\.zip)?")
STAMP = "timestamp.txt"


@dataclass(frozen=True)
class HandIn:
    """What one student handed in at one time: the nodes with the notebooks, and what to call it."""

    name: str
    nodes: tuple[Node, ...]
    student: str = ""
    submitted: str = ""
    layout: str = "plain"


def instant(text: str) -> str:
    """A time with an offset as ISO 8601; empty if it is none, or if its zone has only a name."""
    found = TIME.fullmatch(text.strip())
    if not found:
        return ""
    time, zone = found.groups()
    try:
        said = datetime.fromisoformat(time + ("Z" if zone in ("UTC", "GMT") else zone))
    except ValueError:
        return ""
    return said.isoformat() if is_meant(said) else ""


def gradescope(top: Node, forced: bool) -> list[HandIn]:
    """`submission_456/` for each submission, and all about them in submission_metadata.yml."""
    metadata = top.child(METADATA)
    if metadata is None or metadata.kind != "file":
        return []
    folders = {c.own: c for c in top.inside if c is not metadata}
    absent = "the export lists it, and has no folder of it"
    found = []
    for folder, student, created_at in entries(metadata):
        name = f"{top.name}/{folder}".lstrip("/")
        gone = Node(name, "file", top.path, top.members, trouble=absent)
        at = folders.get(folder, gone)
        found.append(HandIn(name, (at,), student, instant(created_at), "gradescope"))
    return found


def canvas(top: Node, forced: bool) -> list[HandIn]:
    """Flat files, each with its user's number in Canvas. Those of a student are one hand-in."""
    by_student: dict[str, list[Node]] = defaultdict(list)
    names: dict[str, set[str]] = defaultdict(set)
    numbers: list[str] = []  # of the files; Canvas never gives one twice
    for child in (c for c in top.inside if c.kind != "folder"):
        if match := ANONYMOUS.fullmatch(child.own) or CANVAS.fullmatch(child.own):
            by_student[match["student"]].append(child)
            names[match["student"]].add(match["who"])
            numbers += [match["file"]] if match["file"] else []
        elif not forced and (child.kind == "zip" or child.is_notebook):
            return []
    if not forced and (any(len(n) > 1 for n in names.values()) or len(set(numbers)) < len(numbers)):
        return []  # what several people or files have in common is a date, or a version
    return _one_each(by_student, "canvas")


def moodle(top: Node, forced: bool) -> list[HandIn]:
    """A folder (or files) for each participant, with their number in this assignment."""
    by_student: dict[str, list[Node]] = defaultdict(list)
    for child in top.inside:
        if match := MOODLE.fullmatch(child.own):
            by_student[match["student"]].append(child)
    return _one_each(by_student, "moodle")


def _one_each(by_student: dict[str, list[Node]], layout: str) -> list[HandIn]:
    return [HandIn(n[0].name, tuple(n), who, layout=layout) for who, n in by_student.items()]


def nbgrader(top: Node, forced: bool) -> list[HandIn]:
    """The exchange's `inbound/`, or a course's `submitted/`, or the folder above one of them."""
    beside = {c.own for c in top.inside}
    for own, signs in (
        ("inbound", {"outbound", "feedback"}),
        ("submitted", {"source", "release", "gradebook.db", "nbgrader_config.py"}),
    ):
        child = top.child(own)
        if child is not None and child.kind == "folder" and (forced or signs & beside):
            return _inbound(child) or _collected(child, True)
    return _inbound(top) or _collected(top, forced or top.path.name == "submitted")


def _inbound(top: Node) -> list[HandIn]:
    return [
        HandIn(c.name, (c,), match["student"], instant(match["time"]), "nbgrader")
        for c in top.inside
        if c.kind == "folder" and (match := NBGRADER.fullmatch(c.own))
    ]


def _collected(top: Node, sure: bool) -> list[HandIn]:
    """`student/assignment/`. Without another sign each of these must have its timestamp."""
    found = []
    for student in (c for c in top.inside if c.kind == "folder"):
        for assignment in student.inside:
            stamp = assignment.child(STAMP)
            if assignment.kind == "folder" and (sure or stamp is not None):
                when = _stamped(stamp) if stamp is not None else ""
                found.append(HandIn(assignment.name, (assignment,), student.own, when, "nbgrader"))
            elif not sure:
                return []
    return found


def _stamped(stamp: Node) -> str:
    with contextlib.suppress(Unreadable):
        said = archives.read_member(stamp.path, stamp.members, 200)
        return instant(said.decode("utf-8", "replace"))
    return ""


def numbered(file: str, student: str) -> tuple[str, str]:
    """The platform whose own number `student` is, by a submission's name, and who that says it is;
    empty if it is another id."""
    for part in file.split("/"):
        if NBGRADER.fullmatch(part) or GRADESCOPE.fullmatch(part):
            break
        for platform, pattern in (("moodle", MOODLE), ("anonymous", ANONYMOUS), ("canvas", CANVAS)):
            if (match := pattern.fullmatch(part)) and match["student"] == student:
                return platform, match["who"]
    return "", ""


READERS: dict[str, Callable[[Node, bool], list[HandIn]]] = {
    "gradescope": gradescope,
    "nbgrader": nbgrader,
    "moodle": moodle,
    "canvas": canvas,
}


def hand_ins(top: Node, layout: str = "auto") -> list[HandIn]:
    """Everything that was handed in. Raises ValueError if it is not laid out so, or if the export's
    own list cannot be read."""
    if layout == "plain":
        return list(_plain(top))
    found = _forced(top, layout) if layout != "auto" else _read(top) or _exports(top)
    if not found and layout != "auto":
        instead = "give it as it was downloaded, or another --layout"
        raise ValueError(f"{top.path} is not laid out as {TITLES[layout]} downloads are; {instead}")
    taken = {id(n) for hand in found for n in hand.nodes}
    if any(h.layout == "nbgrader" for h in found):
        taken |= _other_rooms(top)
    return [*found, *_plain(top, taken)]


def _forced(top: Node, layout: str) -> list[HandIn]:
    """As `layout` says: here, or else in the folders and zips that lie here."""
    read = READERS[layout]
    return read(top, True) or [h for c in top.inside if c.kind != "file" for h in read(c, True)]


def _read(top: Node) -> list[HandIn]:
    return next((found for read in READERS.values() if (found := read(top, False))), [])


def _exports(top: Node) -> list[HandIn]:
    """Downloads in a folder. A student's own zip could imitate one, so what is not named as a
    platform names it counts only if nothing else lies here, and if it has two students or more."""
    found = {c.name: _read(c) for c in top.inside if c.kind != "file"}
    sure = {name for name in found if TRUSTED.fullmatch(name.rpartition("/")[2])}
    of_several = all(len({h.student for h in f}) > 1 for f in found.values())
    if of_several and not any(c.is_notebook for c in top.inside):
        sure = set(found)
    return [h for name in found if name in sure for h in found[name]]


def _other_rooms(top: Node) -> set[int]:
    """Beside `submitted/` or `inbound/` lie the instructor's own notebooks, and copies: nobody
    handed those in."""
    mine = {c.own for c in top.inside} & {"submitted", "inbound"}
    return {id(c) for c in top.inside if mine and c.kind == "folder" and c.own not in mine}


def _plain(top: Node, taken: Collection[int] = ()) -> Iterator[HandIn]:
    """What no platform's names tell anything about. A folder of folders is a shelf, and each thing
    on it is handed in by itself."""
    for child in top.inside:
        if id(child) in taken:
            continue
        holds_taken = any(id(n) in taken for n in child.all())
        if child.kind == "file":
            if child.is_notebook or child.trouble:
                yield HandIn(child.name, (child,))
        elif holds_taken or (child.kind == "folder" and _shelf(child)):
            yield from _plain(child, taken)
        elif child.kind == "zip" or child.trouble or _handed_in(child):
            yield HandIn(child.name, (child,))


def _shelf(folder: Node) -> bool:
    return all(c.kind != "file" for c in folder.inside) and any(n.is_notebook for n in folder.all())


def _handed_in(folder: Node) -> bool:
    """Whether a folder has what a student may have meant: not if it is empty, hidden or ours."""
    if any(n.is_notebook or n.trouble or n.kind == "zip" for n in folder.all()):
        return True
    own = folder.own.startswith(".") or folder.child("results.jsonl") is not None
    return not own and any(n.kind == "file" for n in folder.all())
