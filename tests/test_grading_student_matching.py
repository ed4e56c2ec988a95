"""From a platform's download to the line of that platform's own roster: the right student, or
nobody."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from grading_course_tools import NOW, points, record, scored, totals
from layout_tools import CANVAS, GRADESCOPE, MOODLE, NOTEBOOK, lay, zipped

from twophase.grading.course.roster_file import read_roster
from twophase.grading.intake.submissions import find
from twophase.grading.scores.gradebook import Gradebook

PLAIN = "time_zone: UTC\nassignments: {t: {}}\n"
WITH = PLAIN + "files: {roster: roster.csv}\n"
RIGHT = {"t-a": "right"}

CANVAS_ROSTER = """Student,ID,SIS User ID,SIS Login ID,Section,T (4711)
Points Possible,,,,,4
"Adams, Ann",101,102,ann,A,
"Brown, Bob",102,103,bob,A,
"Clark, Cy",103,104,cy,A,
"""
MOODLE_WORKSHEET = """Identifier,Full name,Email address,Status,Grade,Maximum Grade,Last modified (submission),Feedback comments
Participant 501,Ann Adams,ann@x.edu,Submitted,,4,,
Participant 502,Bob Brown,bob@x.edu,Submitted,,4,,
Participant 503,Cy Clark,cy@x.edu,Submitted,,4,,
"""
MOODLE_PARTICIPANTS = """First name,Last name,ID number,Email address
Ann,Adams,501,ann@x.edu
Bob,Brown,503,bob@x.edu
Cy,Clark,502,cy@x.edu
"""
GRADESCOPE_ROSTER = """First Name,Last Name,SID,Email,Sections
Ann,Adams,1001,ann@x.edu,
Bob,Brown,1002,bob@x.edu,
Cy,Clark,1003,cy@x.edu,
Dee,Diaz,1004,dee@x.edu,
"""
NBGRADER_STUDENTS = (
    "id,first_name,last_name,email,lms_user_id\nann,Ann,Adams,ann@x.edu,\nbob,Bob,Brown,,\n"
)


def book(
    tmp_path: Path, files: Mapping[str, bytes], roster: str = "", course: str = ""
) -> Gradebook:
    """The gradebook of a class laid out like this: every notebook is right, and what is none cannot
    be read."""
    found = find(lay(tmp_path / "in", files))
    records = [
        record(
            s.name,
            () if s.trouble else RIGHT,
            status="unreadable" if s.trouble else "ok",
            submitted=s.submitted,
        )
        | ({"student": s.student} if s.student else {})
        for s in found
    ]
    return scored(
        tmp_path,
        course or (WITH if roster else PLAIN),
        records,
        NOW,
        **({"roster_csv": roster} if roster else {}),
    )


def all_points(b: Gradebook) -> dict[str, float | str]:
    return {key: points(b, key) for key in totals(b)}


def test_canvas_numbers_are_looked_up_in_its_id_column_and_nowhere_else(tmp_path: Path) -> None:
    b = book(tmp_path, CANVAS, CANVAS_ROSTER)  # the SIS User IDs are other students' numbers
    assert all_points(b) == {"ann": 4, "bob": 4, "cy": "pending"}
    assert b.strangers == ("diazdee_104_link.html",)


def test_canvas_numbers_are_the_key_of_a_roster_without_that_column(tmp_path: Path) -> None:
    assert points(book(tmp_path, CANVAS, "student,name\n101,Ann\n102,Bob\n103,Cy\n"), "101") == 4


def test_an_anonymous_mark_is_nobody_though_it_may_look_like_a_number(tmp_path: Path) -> None:
    b = book(tmp_path, {"anon_101_9_x.ipynb": NOTEBOOK}, CANVAS_ROSTER)
    assert b.strangers == ("anon_101_9_x.ipynb",)


def test_moodles_grading_worksheet_knows_the_participants(tmp_path: Path) -> None:
    b = book(tmp_path, MOODLE, MOODLE_WORKSHEET)
    assert all_points(b) == {"ann@x.edu": 4, "bob@x.edu": 4, "cy@x.edu": "pending"}
    assert not b.strangers


def test_a_blind_worksheet_of_moodle_has_identifiers_only(tmp_path: Path) -> None:
    blind = "Identifier,Status\nParticipant 501,x\nParticipant 502,x\nParticipant 503,x\n"
    assert all_points(book(tmp_path, MOODLE, blind))["Participant 501"] == 4


def test_moodles_list_of_participants_has_no_such_numbers_so_the_name_counts(
    tmp_path: Path,
) -> None:
    b = book(
        tmp_path, MOODLE, MOODLE_PARTICIPANTS
    )  # its ID numbers are other people's participant numbers
    assert all_points(b) == {"ann@x.edu": 4, "bob@x.edu": 4, "cy@x.edu": "pending"}


def test_people_of_the_same_name_are_never_taken_for_each_other(tmp_path: Path) -> None:
    two = {f"Ann Adams_{n}_assignsubmission_file_/x.ipynb": NOTEBOOK for n in (501, 599)}
    b = book(tmp_path, two, MOODLE_PARTICIPANTS)
    assert len(b.strangers) == 2
    assert any("people of the same name" in n for n in b.notes)
    twins = MOODLE_PARTICIPANTS + "Ann,Adams,7,ann2@x.edu\n"
    (tmp_path / "again").mkdir()
    one = book(
        tmp_path / "again", {"Ann Adams_501_assignsubmission_file_/x.ipynb": NOTEBOOK}, twins
    )
    assert any("ann@x.edu and ann2@x.edu" in n for n in one.notes)


def test_gradescope_finds_sid_email_and_name_and_all_who_handed_in_together(tmp_path: Path) -> None:
    b = book(tmp_path, GRADESCOPE, GRADESCOPE_ROSTER)
    assert all_points(b) == {"1001": 4, "1002": 4, "1003": 4, "1004": "pending"}
    assert totals(b)["1003"].outcomes["t"].handed_in is not None


def test_gradescope_sids_are_found_in_other_columns_of_another_roster(tmp_path: Path) -> None:
    roster = (
        "student,name,email,ID number\nann,Ann Adams,,1001\nbob,Bob Brown,bob@x.edu,1002\ncy,Cy"
        " Clark,CY@x.edu,\ndee,dee  DIAZ,,\n"
    )
    assert all_points(book(tmp_path, GRADESCOPE, roster)) == {
        "ann": 4,
        "bob": 4,
        "cy": 4,
        "dee": "pending",
    }


def test_an_id_that_two_people_have_in_different_columns_counts_for_nobody(tmp_path: Path) -> None:
    roster = "student,ID number,SIS User ID\nann,1001,\nbob,,1001\n"
    b = book(tmp_path, GRADESCOPE, roster)
    assert "submission_801/03_kv_cache.ipynb" in b.strangers
    assert any("1001 is ann and bob in the roster" in n for n in b.notes)


def test_who_handed_in_together_and_their_group_in_course_yml_both_count(tmp_path: Path) -> None:
    course = WITH + "groups: {team: ['1002', '1004']}\n"
    b = book(
        tmp_path, {k: v for k, v in GRADESCOPE.items() if "803" not in k}, GRADESCOPE_ROSTER, course
    )
    assert all_points(b)["1004"] == all_points(b)["1003"] == 4


def test_without_a_roster_everybody_who_handed_in_is_listed(tmp_path: Path) -> None:
    assert set(totals(book(tmp_path, GRADESCOPE))) == {"1001", "1002", "cy@x.edu", "Dee Diaz"}


def test_nbgraders_list_of_students_has_its_ids(tmp_path: Path) -> None:
    files = {
        "ann+t+2026-10-30 21:14:03.123456 UTC+AbC-_1234567/x.ipynb": NOTEBOOK,
        "bob+t+2026-10-30 21:14:04.123456 UTC/x.txt": b"",
    }
    b = book(tmp_path, files, NBGRADER_STUDENTS)
    assert all_points(b) == {"ann": 4, "bob": "pending"}


def test_plain_names_of_folders_and_zips_are_the_students_as_ever(tmp_path: Path) -> None:
    b = book(
        tmp_path,
        {
            "ann/x.ipynb": NOTEBOOK,
            "bob.zip": zipped({"x.ipynb": NOTEBOOK}),
            "cy.zip": b"",
            "dee/x.pdf": b"",
        },
    )
    assert all_points(b) == {"ann": 4, "bob": 4, "cy": "pending", "dee": "pending"}


@pytest.mark.parametrize(
    ("roster", "keys"),
    [
        (MOODLE_WORKSHEET, ["ann@x.edu", "bob@x.edu", "cy@x.edu"]),
        (GRADESCOPE_ROSTER, ["1001", "1002", "1003", "1004"]),
        (
            GRADESCOPE_ROSTER.replace("1002", ""),
            ["ann@x.edu", "bob@x.edu", "cy@x.edu", "dee@x.edu"],
        ),
        (NBGRADER_STUDENTS, ["ann", "bob"]),
    ],
)
def test_a_roster_without_a_student_column_goes_by_the_first_that_all_have(
    tmp_path: Path, roster: str, keys: list[str]
) -> None:
    (tmp_path / "r.csv").write_text(roster, encoding="utf-8")
    assert [s.key for s in read_roster(tmp_path / "r.csv")] == keys
