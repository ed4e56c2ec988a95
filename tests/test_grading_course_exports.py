"""Files for Canvas, Moodle and people, and `twophase score` as a person meets it."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from grading_course_tools import dump, record, scored

from twophase.cli.main import main
from twophase.grading.course import reading
from twophase.grading.reports import exports
from twophase.grading.results.records import Record
from twophase.grading.results.writer import Results
from twophase.grading.scores.rounding import percent_text, points_text

A, B = "t-a", "t-b"
RIGHT, HALF = {A: "right", B: "right"}, {A: "right", B: "wrong"}
CANVAS = (
    'Student,ID,SIS User ID,SIS Login ID,Section,Homework 1 (4711),Other (12)\n"    Points'
    ' Possible",,,,,10,5\n"Bo, Al",11,S1,al,Mon,3,\n"=Li,'
    ' Bea",12,S2,bea,Tue,7,\nCy,13,S3,cy,Tue,-,\n'
)
COURSE = (
    "files: {roster: roster.csv, manual: manual.csv}\n"
    "assignments: {t: {title: Cache, canvas: 4711, points: 10, by_hand: {essay: 2}}}\n"
    "excused: [{student: cy, assignment: t, because: ill}]\n"
)
CLASS = [record("al/a.ipynb", RIGHT), record("bea/a.ipynb", HALF)]
HAND = "student,exercise,points\nal,essay,1\n"


def rows(path: Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))


def write(
    tmp_path: Path, roster: str = CANVAS, course: str = COURSE, found: Sequence[Record] = CLASS
) -> Path:
    book = scored(tmp_path, course, found, roster_csv=roster, manual_csv=HAND)
    exports.write(tmp_path / "out", book)
    return tmp_path / "out"


def canvas_header_is_accepted(header: list[str]) -> bool:
    """What Canvas's importer asks of the first line: the student's columns in this order, Section
    last of them."""
    return (
        "Student" in header[0]
        and "ID" in header[1]
        and header[2:4] == ["SIS User ID", "SIS Login ID"]
        and "Section" in header[4]
    )


def test_canvas_gets_its_columns_its_points_possible_and_its_own_name_of_the_assignment(
    tmp_path: Path,
) -> None:
    found = rows(write(tmp_path) / "grades-canvas.csv")
    assert canvas_header_is_accepted(found[0])
    assert found[0] == [
        "Student",
        "ID",
        "SIS User ID",
        "SIS Login ID",
        "Section",
        "Homework 1 (4711)",
    ]
    assert found[1] == ["    Points Possible", "", "", "", "", "10"]
    assert found[3] == ["Bo, Al", "11", "S1", "al", "Mon", "9"]


def test_in_canvas_excused_is_ex_and_pending_keeps_what_was_there(tmp_path: Path) -> None:
    found = {row[1]: row for row in rows(write(tmp_path) / "grades-canvas.csv")}
    assert found["12"] == [
        "'=Li, Bea",
        "12",
        "S2",
        "bea",
        "Tue",
        "7",
    ]  # its essay is not graded yet
    assert found["13"][-1] == "EX"
    course = COURSE.replace("student: cy", "student: al")
    assert {r[1]: r[-1] for r in rows(write(tmp_path, course=course) / "grades-canvas.csv")}[
        "11"
    ] == "EX"


def test_without_canvas_number_the_title_alone_names_a_new_assignment(tmp_path: Path) -> None:
    assert (
        rows(write(tmp_path, course=COURSE.replace("canvas: 4711, ", "")) / "grades-canvas.csv")[0][
            -1
        ]
        == "Cache"
    )


MOODLE = (
    "First name,Last name,Username,ID number,Email"
    " address\nAl,Bo,al,77,al@x.edu\nBea,Li,bea,78,bea@x.edu\nCy,Fu,cy,79,\n"
)


def test_moodle_gets_a_file_for_each_assignment_with_final_grades_only(tmp_path: Path) -> None:
    out = write(tmp_path, roster=MOODLE)
    assert rows(out / "moodle" / "t.csv") == [
        ["Username", "ID number", "Email address", "Cache", "Cache (feedback)"],
        ["al", "77", "al@x.edu", "9", ""],
    ]
    assert not (out / "grades-canvas.csv").exists()


def test_files_that_no_longer_hold_are_removed(tmp_path: Path) -> None:
    write(tmp_path, roster=MOODLE)
    out = write(tmp_path, roster=CANVAS)
    assert sorted(p.name for p in out.rglob("*.csv")) == ["grades-canvas.csv", "grades.csv"]
    out = write(tmp_path, roster="student\nal\nbea\ncy\n")
    assert sorted(p.name for p in out.rglob("*.csv")) == ["grades.csv"]


def test_the_table_for_people_has_totals_and_says_what_is_pending_late_or_excused(
    tmp_path: Path,
) -> None:
    found = rows(write(tmp_path) / "grades.csv")
    assert found[0] == [
        "student",
        "name",
        "section",
        "t",
        "total",
        "out of",
        "percent",
        "status",
        "remarks",
    ]
    assert found[1][3:8] == ["pending", "", "", "", "pending"]
    assert found[1][1] == "'=Li, Bea"
    assert found[1][-1] == "t: pending: essay is not graded by hand yet"
    assert found[2][3:] == ["9", "9", "10", "90", "graded", ""]
    assert found[3][3:] == ["excused", "", "", "", "none", "t: not handed in; excused: ill"]


@pytest.mark.parametrize(
    ("points", "shown"),
    [
        ("1/3", "0.33"),
        ("1/8", "0.13"),
        ("2", "2"),
        ("199999/100000", "2"),
        ("0", "0"),
        ("100", "100"),
    ],
)
def test_points_are_rounded_half_up_to_two_decimals(points: str, shown: str) -> None:
    assert points_text(Fraction(points)) == shown


@pytest.mark.parametrize(("percent", "shown"), [("125/2", "63%"), ("127/2", "64%"), ("0", "0%")])
def test_percentages_are_rounded_half_up_to_whole_ones(percent: str, shown: str) -> None:
    assert percent_text(Fraction(percent)) == shown


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    code = ended.value.code
    return (code if isinstance(code, int) else 0), " ".join("".join(capsys.readouterr()).split())


@pytest.fixture
def graded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as `twophase grade` leaves it, with a course file beside it."""
    (tmp_path / "grades").mkdir()
    dump(
        tmp_path / "grades", [record("al/a.ipynb", RIGHT), record("bea/\x1b[2J[red]x.ipynb", HALF)]
    )
    (tmp_path / "course.yml").write_text("assignments: {t: {}}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def test_score_writes_everything_and_twice_the_same(
    graded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run(capsys, "score", "grades")
    assert (code, "8 of 8" in said, "100%" in said) == (0, True, True)
    names = ["grades.csv", "report.html", "results.jsonl"]
    assert sorted(p.name for p in (graded / "grades").iterdir()) == names
    first = {n: (graded / "grades" / n).read_bytes() for n in names}
    assert run(capsys, "score", "grades/results.jsonl", "--out", "grades") == (code, said)
    assert {n: (graded / "grades" / n).read_bytes() for n in names} == first


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        (record("cy/a.ipynb", status="unreadable"), 1, "pending, cy: t: cy/a.ipynb cannot be read"),
        (
            record("cy/a.ipynb", status="internal"),
            3,
            "pending, cy: t: the grader failed on cy/a.ipynb",
        ),
        (record("cy/a.ipynb", topic="", status="internal"), 3, "pending, cy: t: the grader failed"),
    ],
)
def test_the_exit_code_tells_waiting_from_our_fault(
    graded: Path, capsys: pytest.CaptureFixture[str], more: Record, code: int, says: str
) -> None:
    with (graded / "grades/results.jsonl").open("a") as file:
        file.write(json.dumps(more) + "\n")
    found = run(capsys, "score", "grades")
    assert found[0] == code
    assert says in found[1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["score", "nowhere"], "there is no file nowhere"),
        (["score", "grades", "--course", "nowhere.yml"], "there is no file nowhere.yml"),
        (
            ["score", "grades", "--course", "broken.yml"],
            "broken.yml: late.per_day: '10' is no percentage",
        ),
        (["score", "grades", "--out", "course.yml"], "course.yml is a file"),
        (["score", "grades", "--at", "noon"], "'noon' is no time"),
        (["score", "course.yml"], "line 1 of course.yml is no result"),
    ],
)
def test_bad_use_is_one_sentence_and_exit_2(
    graded: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    (graded / "broken.yml").write_text("assignments: {t: {}}\nlate: {per_day: 10}\n")
    code, said = run(capsys, *arguments)
    assert (code, says in said, "Traceback" in said) == (2, True, False), said
    assert not (graded / "grades/grades.csv").exists()


def test_score_as_of_a_time_leaves_out_what_was_not_due_then(
    graded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (graded / "course.yml").write_text(
        "time_zone: UTC\nassignments: {t: {due: 2026-10-02}}\nfiles: {roster: r.csv}\nsubmissions:"
        " {student: folder}\n"
    )
    (graded / "r.csv").write_text("student\nal\nbea\ncy\n")
    run(capsys, "score", "grades", "--at", "2026-10-02 12:00")
    assert "cy,,,open" in (graded / "grades/grades.csv").read_text()
    run(capsys, "score", "grades", "--at", "2026-10-03 00:00")
    assert "cy,,,0,0,8,0,graded" in (graded / "grades/grades.csv").read_text()


@pytest.mark.parametrize(
    ("course", "code", "files"),
    [
        ("assignments: {t: {}}", 0, ["feedback", "grades.csv", "report.html", "results.jsonl"]),
        (
            "assignments: {t: {by_hand: {essay: 1}}}",
            1,
            ["feedback", "grades.csv", "report.html", "results.jsonl"],
        ),
        ("assignments: {t: {pionts: 1}}", 2, []),
    ],
)
def test_grade_writes_grades_too_when_it_is_given_the_course_and_reads_that_first(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    course: str,
    code: int,
    files: list[str],
) -> None:
    from twophase.cli import grade
    from twophase.grading.intake.submissions import Submission

    def graded(
        submissions: object, course: object, results: Results, *rest: object, **more: object
    ) -> None:
        results.append(
            record("ann/a.ipynb", RIGHT)
            | {"environment": dict.fromkeys(("twophase", "python", "torch"), "")}
        )

    monkeypatch.setattr(grade, "grade_folder", graded)
    monkeypatch.setattr(grade.options, "require_confinement", lambda unsafe: None)
    monkeypatch.setattr(
        grade.submissions, "find", lambda folder, layout: [Submission(folder, "ann/a.ipynb")]
    )
    (tmp_path / "course.yml").write_text(course)
    found = run(
        capsys,
        "grade",
        "in",
        "--out",
        str(tmp_path / "out"),
        "--course",
        str(tmp_path / "course.yml"),
    )
    assert found[0] == code, found[1]
    assert sorted(p.name for p in (tmp_path / "out").glob("*")) == files


def test_the_documented_example_scores_a_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ann is late within her extension, dee is late, bob is in ann's team, cy is excused."""
    example = Path(reading.__file__).parent / "example" / "course.yml"
    answers = {
        "kv_cache-kv_bytes": "right",
        "kv_cache-max_batch": "weights_left_out",
        "kv_cache-snippet": "right",
    }
    asked = [record(f"{s}/03_kv_cache.ipynb", answers, "kv_cache") for s in ("ann", "dee")]
    dump(tmp_path, asked)
    code, _ = run(
        capsys, "score", str(tmp_path), "--course", str(example), "--at", "2026-11-05 12:00"
    )
    found = {row[0]: row for row in rows(tmp_path / "grades.csv")}
    at = found["student"].index("kv_cache")
    # of 15 points 4 + 3 + 4.5, dropping the one that costs most (max_batch), and 2 extra: 10.5 of
    # 9, of 20
    assert found["ann"][at] == "23.33"
    assert "extended to 2026-11-02 23:59 (ill)" in found["ann"][-1]
    # bob has no extension of his own: two days and 23 hours late, 30%
    assert found["bob"][at] == "16.33"
    # dee: essay 3 of 5; max_batch is excused, and the essay dropped: 4 + 2 of 4, and a day late
    assert found["dee"][at] == "27"
    assert found["cy"][at] == "excused"
    assert (code, (tmp_path / "grades-canvas.csv").exists()) == (0, True)


def test_the_table_of_a_large_class_ends_and_says_where_the_rest_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "course.yml").write_text("assignments: {t: {}}\n")
    dump(tmp_path, [record(f"s{n:04}/a.ipynb", {"t-a": "right"}) for n in range(250)])
    with pytest.raises(SystemExit):
        main(["score", str(tmp_path), "--course", str(tmp_path / "course.yml")])
    shown = capsys.readouterr().out
    assert "s0099" in shown
    assert "s0100" not in shown
    assert "the first 100 of 250 students" in " ".join(shown.split())
    assert len((tmp_path / "grades.csv").read_text().splitlines()) == 251


def test_grades_that_a_full_disk_does_not_take_are_no_grades_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    dump(tmp_path, [record("al/a.ipynb", RIGHT)])
    (tmp_path / "course.yml").write_text("assignments: {t: {}}")
    monkeypatch.setattr(exports, "write", full)
    with pytest.raises(SystemExit) as ended:
        main(["score", str(tmp_path), "--course", str(tmp_path / "course.yml")])
    said = capsys.readouterr().err
    assert (ended.value.code, said.count("\n")) == (3, 1)  # 1 is: a grade waits for a person
    assert "cannot be written: No space left on device" in said
