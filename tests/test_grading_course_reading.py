"""course.yml is read strictly: whatever is wrong in it is one sentence with its place, and all of
it is told at once."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from grading_course_tools import record, scored

from twophase.checks import registry
from twophase.grading.course import reading
from twophase.grading.course.by_hand_file import read_manual, read_overrides
from twophase.grading.course.csv_reading import read_csv
from twophase.grading.course.extensions import Excusal, Extension
from twophase.grading.course.fields import keys_of
from twophase.grading.course.hand_in_times import read_times
from twophase.grading.course.lateness import LateRule
from twophase.grading.course.roster_file import read_roster
from twophase.grading.course.scheme import (
    Assignment,
    ExerciseRule,
    Files,
    Group,
    Partial,
    RosterFile,
    Scheme,
    Submissions,
)
from twophase.grading.scores import gradebook

EXAMPLE = Path(reading.__file__).parent / "example" / "course.yml"


def load(tmp_path: Path, text: str) -> Scheme:
    path = tmp_path / "course.yml"
    path.write_text(text, encoding="utf-8")
    return reading.read_course(path)


def mistakes(tmp_path: Path, text: str) -> list[str]:
    """The sentences, without the file's name in front."""
    with pytest.raises(ValueError, match=r"course\.yml") as raised:
        load(tmp_path, text)
    assert all(line.startswith(f"{tmp_path}/course.yml") for line in str(raised.value).splitlines())
    return [
        line.removeprefix(f"{tmp_path}/course.yml").lstrip(": ")
        for line in str(raised.value).splitlines()
    ]


T = "assignments: {t: {}}\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "assignments: there are none"),
        ("- a", "expected `key: value` lines, found a list"),
        ("assignments: [a]", "assignments: expected `key: value` lines, found a list"),
        ("asignments: {t: {}}", "asignments: there is no such key; did you mean 'assignments'?"),
        (T + "time_zone: Europe/Berlim", "did you mean 'Europe/Berlin'?"),
        (T + "time_zone: CEST2", "time_zone: there is no time zone 'CEST2'"),
        ("assignments: {t: {due: 2026-10-02}}", "time_zone: is missing"),
        (
            T + "late: {per_day: 10}",
            "late.per_day: '10' is no percentage; write it with its sign, such as 10%",
        ),
        (T + "late: {per_day: 110%}", "late.per_day: 110% is more than 100%"),
        (T + "late: {per_day: -1%}", "late.per_day: '-1%' is no percentage"),
        (
            T + "late: {per_dya: 10%}",
            "late.per_dya: there is no such key; did you mean 'per_day'?",
        ),
        (T + "late: {grace: 15}", "late.grace: '15' is no duration"),
        (T + "late: {grace: 2 h, cutoff: 1 h}", "late.cutoff: 1 h is shorter than the grace, 2 h"),
        (T + "late: {of: all}", "late.of: 'all' is not one of earned, possible"),
        (
            T + "submissions: {counts: last}",
            "submissions.counts: 'last' is not one of best, latest",
        ),
        (
            T + "submissions: {student: name}",
            "submissions.student: 'name' is neither folder nor file",
        ),
        (
            T + "submissions: {student: '(('}",
            "submissions.student: '((' is neither folder nor file nor a regular expression",
        ),
        (T + "drop_lowest: one", "drop_lowest: 'one' is no whole number"),
        (T + "drop_lowest: 1", "drop_lowest: dropping 1 of 1 assignments leaves nothing to count"),
        (
            "assignments: {t: {exercises: {a: 1, b: {extra: yes}}, drop_lowest: 1}}",
            "assignments.t.drop_lowest: dropping 1 of 1 exercise leaves nothing to count",
        ),
        (T + "partial: {cases: 0.4}", "partial.cases: '0.4' is no percentage"),
        (
            T + "partial: {misconceptions: {a: half}}",
            "partial.misconceptions.a: 'half' is no percentage",
        ),
        ("assignments: {t: {points: -1}}", "assignments.t.points: '-1' is no number of points"),
        ("assignments: {t: {points: 0}}", "assignments.t.points: 0 points cannot be earned"),
        ("assignments: {t: {points: nan}}", "assignments.t.points: 'nan' is no number of points"),
        ("assignments: {t: {points: 1e3}}", "assignments.t.points: '1e3' is no number of points"),
        (
            "assignments: {t: {exercises: {t-a: {point: 3}}}}",
            "assignments.t.exercises.t-a.point: there is no such key; did you mean 'points'?",
        ),
        (
            "assignments: {t: {exercises: {t-a: {points: 2, extra: true}}}}",
            "assignments.t.exercises: nothing here counts",
        ),
        (
            "assignments: {t: {exercises: {t-a: 2}, by_hand: {t-a: 1}}}",
            "assignments.t.by_hand: 't-a' is under exercises too",
        ),
        (
            "assignments: {t: {by_hand: {essay: {title: x}}}}",
            "assignments.t.by_hand.essay.points: is missing",
        ),
        (
            "assignments: {t: {by_hand: {e: 1}}, u: {by_hand: {e: 1}}}",
            "assignments.u.by_hand: 'e' is in t too",
        ),
        (
            "assignments: {t: {canvas: KV}}",
            "assignments.t.canvas: 'KV' is not the number that Canvas has",
        ),
        (
            "assignments: {t: {title: Final Grade}}",
            "assignments.t.title: Canvas takes 'Final Grade' for a column of its own",
        ),
        (
            "time_zone: UTC\nassignments: {t: {due: tomorrow}}",
            "assignments.t.due: 'tomorrow' is no local time",
        ),
        (
            "time_zone: UTC\nassignments: {t: {due: 2026-02-30}}",
            "assignments.t.due: there is no day 2026-02-30",
        ),
        (
            "time_zone: UTC\nassignments: {t: {due: 2026-02-03 24:30}}",
            "assignments.t.due: there is no time 24:30",
        ),
        (
            "time_zone: Europe/Berlin\nassignments: {t: {due: 2026-03-29 02:30}}",
            "2026-03-29 02:30 does not exist in Europe/Berlin",
        ),
        (
            T + "groups: {g: ann}",
            "groups.g.members: expected a list of names such as [ann, bob], found 'ann'",
        ),
        (T + "groups: {g: []}", "groups.g.members: expected a list of names"),
        (T + "groups: {g: [ann, ann]}", "groups.g.members: 'ann' is there twice"),
        (T + "groups: {g: [ann], h: [ann, bob]}", "groups.h: 'ann' is in g too, for t"),
        (
            T + "groups: {g: {members: [ann], assignments: [v]}}",
            "groups.g.assignments: there is no assignment 'v'; known here: t",
        ),
        (T + "excused: {student: ann}", "excused: expected a list of `- key: value` lines"),
        (T + "excused: [{student: ann}]", "excused[1].assignment: is missing"),
        (
            T + "excused: [{student: ann, assignment: tt}]",
            "excused[1].assignment: there is no assignment 'tt'; did you mean 't'?",
        ),
        (
            (
                "assignments: {t: {exercises: {t-abc: 1}}}\nexcused: [{student: ann, assignment: t,"
                " exercise: t-abd}]"
            ),
            "excused[1].exercise: there is no exercise 't-abd'; did you mean 't-abc'?",
        ),
        (
            T + "extensions: [{student: ann, assignment: t, by: 1 day}]",
            "extensions[1]: t has no due date",
        ),
        (
            T + "extensions: [{student: ann, assignment: t}]",
            "extensions[1]: needs either until (a time) or by (a duration)",
        ),
        (
            (
                "time_zone: UTC\nassignments: {t: {due: 2026-10-02}}\nextensions: [{student: a,"
                " assignment: t, until: 2026-10-01}]"
            ),
            "extensions[1].until: 2026-10-01 is before the due date, 2026-10-02",
        ),
        (
            (
                "assignments: {t: {}, u: {}}\ngroups: {g: {members: [ann], assignments:"
                " [u]}}\nexcused: [{student: g, assignment: t}]"
            ),
            "excused[1].student: g is a group in u only",
        ),
        (
            "assignments: {../t: {}}",
            "assignments.../t: the name of a notebook's topic has letters, digits, _ and - only",
        ),
        (T + "files: {roster: nowhere.csv}", "files.roster.file: there is no file"),
        (T + "files: {roaster: x}", "files.roaster: there is no such key; did you mean 'roster'?"),
        ("assignments: {t: {}}\nassignments: {u: {}}", "'assignments' is there twice"),
        ("assignments: {t: [}", "line 1"),
        (
            T + "late: {per_day: !!python/name:os.system ''}",
            "a tag such as !!python/name:os.system",
        ),
        ("assignments: {!!int 3: {}}", "line 1: a tag such as !!int means nothing here"),
        (T + "course: !!timestamp x", "line 2: a tag such as !!timestamp means nothing here"),
        (T + "late: !!map [a]", "line 2: a tag such as !!map means nothing here"),
        (T + "course: !local x", "line 2: a tag such as !local means nothing here"),
        ("assignments: {'': {}}", "line 1: a key is empty"),
        ("assignments: {t: {exercises: {' ': 2}}}", "line 1: a key is empty"),
        ("assignments: {t: {' from above': u}}", "there is no such key as ' from above'"),
        (T + "extensions: ann", "extensions: expected a list of `- key: value` lines, found 'ann'"),
        (
            "assignments: {t: {exercises: {a: {points: 2, extra: 1}, b: 2}}}",
            "assignments.t.exercises.a.extra: '1' is neither yes nor no",
        ),
        (
            "assignments: {t: {exercises: {a: {points: 2, extra: [yes]}, b: 2}}}",
            "assignments.t.exercises.a.extra: a list is neither yes nor no",
        ),
        (
            T + "submissions: {student: '(?P<student>a{99999999999})'}",
            "is neither folder nor file nor a regular expression",
        ),
        (
            T + "submissions: {student: '" + "(" * 3000 + "'}",
            "submissions.student: the pattern has too many parentheses",
        ),
        (T + "late: {grace: " + "9" * 5000 + " days}", "late.grace: '9999"),
        (T + "time_zone: ../zone", "no time zone '../zone'; write an IANA name such as"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_place(tmp_path: Path, text: str, sentence: str) -> None:
    found = mistakes(tmp_path, text)
    assert len(found) == 1, found
    assert sentence in found[0]


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        "time_zone: Mars/Base\nassignments: {t: {points: x, due: y}}\nlate: {per_day: 3}\n",
    )
    assert [m.partition(":")[0] for m in found] == [
        "time_zone",
        "late.per_day",
        "assignments.t.due",
        "assignments.t.points",
    ]


def test_values_stay_what_was_written(tmp_path: Path) -> None:
    """0123 is a name and no octal number, `no` a name and no truth value, 23:59 no number of
    seconds."""
    scheme = load(tmp_path, T + "groups: {g: [0123, no, 1_000]}")
    assert scheme.groups["g"].members == ("0123", "no", "1_000")
    scheme = load(
        tmp_path, "time_zone: UTC\nassignments: {t: {due: 2026-10-02 23:59, points: 2.5}}"
    )
    assert (str(scheme.assignments["t"].due), scheme.assignments["t"].points) == (
        "2026-10-02 23:59",
        Fraction(5, 2),
    )


def test_a_file_that_is_not_there_or_no_text_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"course\.yml cannot be read"):
        reading.read_course(tmp_path / "course.yml")
    (tmp_path / "course.yml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="not UTF-8"):
        reading.read_course(tmp_path / "course.yml")


def test_an_assignments_late_rule_replaces_the_courses_as_a_whole(tmp_path: Path) -> None:
    text = (
        "time_zone: UTC\nlate: {per_day: 10%, grace: 1 h}\nassignments: {t: {late: {per_day: 20"
        " %}}, u: {}}"
    )
    scheme = load(tmp_path, text)
    assert (
        scheme.assignments["t"].late.per_day,
        scheme.assignments["t"].late.grace.roughly.seconds,
    ) == (
        Fraction(1, 5),
        0,
    )
    assert scheme.assignments["u"].late.grace.roughly.seconds == 3600


class TestTheExample:
    """The documented example is read, means what its comments say, and names nothing that does not
    exist."""

    def test_it_is_read_with_all_its_files(self) -> None:
        scheme, beside = gradebook.load_course(EXAMPLE)
        assert list(scheme.assignments) == ["two_phases", "kv_cache", "latency_throughput"]
        assert [s.key for s in beside.roster] == ["ann", "bob", "cy", "dee"]
        assert beside.manual.hand
        assert beside.manual.overrides
        assert beside.times

    def test_it_shows_every_key_that_there_is(self) -> None:
        text = EXAMPLE.read_text(encoding="utf-8")
        rooms = (
            Scheme,
            Submissions,
            Files,
            RosterFile,
            LateRule,
            Partial,
            Assignment,
            ExerciseRule,
        )
        keys = {key for kind in (*rooms, Group, Extension, Excusal) for key in keys_of(kind)}
        assert len(keys) > 30
        assert {k for k in keys if not re.search(rf"\b{k}:", text)} == set()

    def test_its_topics_exercises_and_misconceptions_are_the_courses_own(self) -> None:
        scheme = reading.read_course(EXAMPLE)
        assert set(scheme.assignments) <= set(registry.topics())
        for assignment in scheme.assignments.values():
            for exercise, rule in (assignment.exercises or {}).items():
                assert exercise in registry.ids(assignment.topic)
                assert set(rule.partial.misconceptions) <= {
                    m.slug for m in registry.load(exercise).misconceptions
                }


CANVAS = (
    'Student,ID,SIS User ID,SIS Login ID,Section,HW (7)\n"    Points Possible",,,,,10\n"Bo,'
    ' Al",11,S1,al,Mon,3\n'
)


def test_rosters_of_canvas_moodle_and_our_own_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "roster.csv"
    path.write_text(CANVAS, encoding="utf-8-sig")
    (al,) = read_roster(path)
    assert (al.key, al.name, al.canvas_id, al.sis_user_id, al.section, al.raw["HW (7)"]) == (
        "al",
        "Bo, Al",
        "11",
        "S1",
        "Mon",
        "3",
    )
    assert read_roster(path, "ID")[0].key == "11"
    path.write_text(
        "First name;Last name;Username;ID number;Email address\nAl;Bo;al;77;al@x.edu\n",
        encoding="utf-8",
    )
    (al,) = read_roster(path)
    assert (al.key, al.name, al.id_number, al.email) == ("al", "Al Bo", "77", "al@x.edu")
    path.write_text("student,name\nal,Al Bo\nzoë,\n", encoding="utf-8")
    assert [(s.key, s.shown) for s in read_roster(path)] == [("al", "Al Bo"), ("zoë", "zoë")]


@pytest.mark.parametrize(
    ("reader", "content", "sentence"),
    [
        (read_roster, "student,name\nal,\nal,\n", "line 3: 'al' is there twice"),
        (read_roster, "name\nal\n", "there is no column student"),
        (read_roster, "student,name\n", "has no students"),
        (read_roster, "student,name\n ,Al\n", "line 2: student: expected text"),
        (read_csv, "", "is empty"),
        (read_csv, "a,a\n1,2\n", "two columns have the same name"),
        (read_csv, "a,b\n1,2,3\n", "line 2: 3 cells under 2 columns"),
        (read_csv, 'a,b\n1,"2\n', "unexpected end of data"),
        (read_manual, "student,exercise,pts\n", "there is no column points"),
        (read_manual, "student,exercise,points,note\n", "no use for a column 'note'"),
        (
            read_manual,
            "student,exercise,points\nal,e,-1\n",
            "line 2: points: '-1' is no number of points",
        ),
        (
            read_manual,
            "student,exercise,points\nal,e,1\nal,e,2\n",
            "line 3: al has points for e already",
        ),
        (
            read_manual,
            "student,exercise,points,submission\nal,e,1,xyz\n",
            "line 2: submission: 'xyz' is no digest",
        ),
        (read_overrides, "abc: {all: {points: 1, because: x}}", "abc: is no digest of 12 or more"),
        (
            read_overrides,
            "abcdefabcdef: {all: {points: 1}}",
            "abcdefabcdef.all.because: is missing",
        ),
        (
            read_overrides,
            "abcdefabcdef: {all: {points: 1, why: x, because: y}}",
            "abcdefabcdef.all.why: there is no such key",
        ),
        (
            read_overrides,
            (
                "abcdefabcdef: {e: {points: 1, because: x}}\nabcdefabcdef0: {e: {points: 1,"
                " because: x}}"
            ),
            "abcdefabcdef: begins another digest",
        ),
    ],
)
def test_a_mistake_in_a_file_beside_it_is_one_sentence_too(
    tmp_path: Path, reader: object, content: str, sentence: str
) -> None:
    path = tmp_path / "beside"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(sentence)):
        reader(path)  # type: ignore[operator]


def test_a_roster_whose_first_line_ends_in_a_comma_is_not_told_apart_by_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "roster.csv").write_text("name,section,\nAnn,Mon,\nBob,Mon,\n")
    with pytest.raises(ValueError, match="there is no column student in its first line"):
        read_roster(tmp_path / "roster.csv")
    (tmp_path / "roster.csv").write_text("student,section,\nann,Mon,\nbob,Mon,\n")
    assert [s.key for s in read_roster(tmp_path / "roster.csv")] == ["ann", "bob"]


def test_times_are_read_with_an_offset_or_in_the_courses_zone(tmp_path: Path) -> None:
    zone = load(tmp_path, T + "time_zone: America/New_York").time_zone
    path = tmp_path / "times.csv"
    path.write_text(
        "file,submitted\na,2026-10-02T12:00:00+02:00\nb,2026-10-02 06:00\nc,2026-10-02T10:00:00Z\n",
        encoding="utf-8",
    )
    assert len(set(read_times(path, zone).values())) == 1
    path.write_text("file,submitted\na,noon\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2: submitted: 'noon' is no time"):
        read_times(path, zone)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            "exercises: {t-b: 1}",
            "no result has an exercise 't-b', so grade again if it is new; did you mean 't-a'?",
        ),
        ("by_hand: {t-e: 2}", "manual.csv, line 2: t-a is judged, not graded by hand"),
    ],
)
def test_what_results_and_course_file_disagree_about_is_one_sentence(
    tmp_path: Path, more: str, sentence: str
) -> None:
    course = f"files: {{manual: manual.csv}}\nassignments: {{t: {{{more}}}}}"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        scored(
            tmp_path,
            course,
            [record("ann/a.ipynb", {"t-a": "right"})],
            manual_csv="student,exercise,points\nann,t-a,1\n",
        )


def test_a_name_that_nobody_has_is_refused_when_there_is_a_roster(tmp_path: Path) -> None:
    course = (
        "files: {roster: roster.csv}\nassignments: {t: {}}\nexcused: [{student: anne,"
        " assignment: t}]"
    )
    with pytest.raises(
        ValueError,
        match=re.escape(
            "excused[1].student: there is no student or group 'anne'; did you mean 'ann'?"
        ),
    ):
        scored(
            tmp_path,
            course,
            [record("ann/a.ipynb", {"t-a": "right"})],
            roster_csv="student,name\nann,\n",
        )
