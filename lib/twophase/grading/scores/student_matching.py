"""Whose work a file is: from what its layout says (a number, a name, an email) to the roster."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from twophase.grading.course.roster_file import Student
from twophase.grading.course.scheme import Scheme
from twophase.grading.intake.gradescope_export import TOGETHER
from twophase.grading.intake.layouts import numbered
from twophase.grading.results.records import Record

# where a platform's own number stands in the roster
COLUMN = {"canvas": "canvas_id", "moodle": "participant"}
OTHERS = ("email", "username", "id_number", "sis_user_id", "sis_login_id", "name")


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


class Roster:
    """The roster by every column that may name a student. `notes`: for a person to know."""

    def __init__(self, students: Sequence[Student]) -> None:
        self.students, self.notes = students, list[str]()
        self._by: dict[str, dict[str, list[str]]] = {
            column: defaultdict(list) for column in ("key", *COLUMN.values(), *OTHERS)
        }
        for student in students:
            for column, found in self._by.items():
                if value := _plain(getattr(student, column)):
                    found[value].append(student.key)

    def keys(self, said: str, file: str) -> list[str]:
        """The students that a record's `student` means: several if they handed in together."""
        whole = said in self._by["key"].get(_plain(said), [])
        parts = [said] if whole else said.split(TOGETHER)
        return [key for part in parts for key in self._one(part, file)] if self.students else parts

    def has(self, column: str) -> bool:
        """Whether anybody has something in this column."""
        return bool(self._by[column])

    def _one(self, said: str, file: str) -> list[str]:
        platform, who = numbered(file, said)
        if platform in COLUMN and self.has(COLUMN[platform]):
            return self._only(COLUMN[platform], said, file)
        if platform == "moodle" and self.has("name"):
            return self._only("name", who, file)
        if found := self._by["key"].get(_plain(said)):
            return found if len(found) == 1 else [k for k in found if k == said]
        if platform:
            return []  # this number may be somebody else's in another column
        several = {k for column in OTHERS for k in self._by[column].get(_plain(said), [])}
        return self._certain(sorted(several), said, file)

    def _only(self, column: str, said: str, file: str) -> list[str]:
        return self._certain(self._by[column].get(_plain(said), []), said, file)

    def _certain(self, found: list[str], said: str, file: str) -> list[str]:
        if len(found) > 1:
            self.notes.append(
                f"{file}: {said} is {' and '.join(found)} in the roster, so it counts for nobody."
            )
        return found if len(found) == 1 else []


def by_student(
    scheme: Scheme, students: Sequence[Student], by_topic: Mapping[str, Iterable[Record]]
) -> tuple[dict[tuple[str, str], list[Record]], list[str], list[str]]:
    """Records by student and assignment; the files of nobody; notes on those of several people."""
    roster, known = Roster(students), {s.key for s in students}
    found: dict[tuple[str, str], list[Record]] = {}
    strangers: list[str] = []
    for topic, records in by_topic.items():
        if topic and topic not in scheme.assignments:
            continue  # the gradebook's notes say so
        records = list(records)
        twice = _namesakes(records, roster)
        for record in records:
            file, who = str(record["file"]), record.get("student")
            said = [] if file in twice else students_of(who, file, topic, roster, scheme)
            members = (m for w in said for m in scheme.members(w, topic))
            ours = dict.fromkeys(m for m in members if not known or m in known)
            if not ours:
                strangers.append(record["file"])
            for member in ours:
                found.setdefault((member, topic), []).append(record)
    return found, sorted(strangers), list(dict.fromkeys(roster.notes))


def students_of(
    said: object, file: str, topic: str, roster: Roster, scheme: Scheme | None
) -> list[str]:
    """The students, or the group, of a file: its layout or record counts before its path."""
    if not isinstance(said, str) or not said:
        by_path = _student_in_path(file, scheme.submissions.student) if scheme else None
        return [by_path] if by_path else []
    if scheme and (group := scheme.groups.get(said)) and group.covers(topic):
        return [said]
    return roster.keys(said, file)


def _student_in_path(file: str, rule: str | re.Pattern[str]) -> str | None:
    """Whose file this is, by its path; None if the rule finds nobody in it."""
    if isinstance(rule, str):
        name = file.split("/")[0 if rule == "folder" else -1]  # also of `ann.ipynb`, of `ann.zip`
        return name.removesuffix(".zip").removesuffix(".ipynb")
    found = rule.search(file)
    return found["student"] if found and found["student"] else None


def _namesakes(records: Iterable[Record], roster: Roster) -> set[str]:
    """Files of people of one name, if Moodle's numbers cannot tell which is in the roster."""
    numbers: dict[str, set[str]] = defaultdict(set)
    files: dict[str, list[str]] = defaultdict(list)
    for record in records:
        said, file = str(record.get("student") or ""), str(record["file"])
        platform, who = numbered(file, said)
        if platform == "moodle" and roster.students and not roster.has("participant"):
            numbers[_plain(who)].add(said)
            files[_plain(who)].append(file)
    twice = [name for name, n in numbers.items() if len(n) > 1]
    for name in twice:
        roster.notes.append(
            f"{' and '.join(files[name])}: people of the same name, so they count for nobody; "
            "take Moodle's grading worksheet as the roster, which has their numbers."
        )
    return {file for name in twice for file in files[name]}
