"""What one student gets: partial credit, lateness, several submissions, groups, excusals, cells
graded by hand, overrides."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from grading_course_tools import NOW, digest, points, question, record, said, scored, totals

from twophase.grading.reports.exports import safe

A, B, C = "t-a", "t-b", "t-c"
PLAIN = "assignments: {t: {}}"
DUE = (
    "time_zone: Europe/Berlin\nlate: {per_day: 10%, cutoff: 5 days}\nassignments: {t: {due:"
    " 2026-10-02 23:59}}\n"
)
ON_TIME, DAY_LATE, TOO_LATE = (
    "2026-10-02T21:00:00+02:00",
    "2026-10-03T12:00:00+02:00",
    "2026-10-20T12:00:00+02:00",
)
RIGHT = {A: "right", B: "right"}
HALF = {A: "right", B: "wrong"}
MANUAL = "files: {manual: manual.csv}\nassignments: {t: {by_hand: {essay: 2}}}"
HAND = "student,exercise,points,comment,submission\n"


def test_points_are_those_of_the_checks_unless_the_course_says_otherwise(tmp_path: Path) -> None:
    mine = [record("ann/a.ipynb", HALF)]
    assert points(scored(tmp_path, PLAIN, mine), "ann") == 4
    assert (
        points(
            scored(tmp_path, f"assignments: {{t: {{exercises: {{{A}: 1, {B}: 3}}}}}}", mine), "ann"
        )
        == 1
    )
    assert (
        points(
            scored(
                tmp_path,
                f"assignments: {{t: {{points: 100, exercises: {{{A}: 1, {B}: 3}}}}}}",
                mine,
            ),
            "ann",
        )
        == 25
    )
    book = scored(tmp_path, f"assignments: {{t: {{exercises: {{{A}: 1}}}}}}", mine)
    assert points(book, "ann") == 1
    assert book.notes == ("t: t-b is not in course.yml: not counted.",)


def test_extra_credit_adds_points_and_not_to_the_maximum(tmp_path: Path) -> None:
    course = f"assignments: {{t: {{exercises: {{{A}: 4, {B}: {{points: 2, extra: true}}}}}}}}"
    book = scored(
        tmp_path,
        course,
        [record("ann/a.ipynb", RIGHT), record("bob/a.ipynb", {A: "right", B: "wrong"})],
    )
    assert [(points(book, s), float(totals(book)[s].percent or 0)) for s in ("ann", "bob")] == [
        (6, 150),
        (4, 100),
    ]


@pytest.mark.parametrize(
    ("partial", "answer", "hidden", "expected"),
    [
        ("cases: 50%", "wrong", (True, False), 1),
        ("cases: 50%", "wrong", (True, True), 2),
        ("cases: 50%", "wrong", (), 0),
        (
            "cases: 50%",
            "failed",
            (True, True),
            0,
        ),  # it died or ran out of time: the cases after that are not known
        ("cases: 50%", "right", (True, True), 4),
        ("misconceptions: {off_by_one: 75%}", "off_by_one", (False, False), 3),
        ("misconceptions: {off_by_one: 75%}", "another", (False, False), 0),
        ("cases: 100%, misconceptions: {off_by_one: 25%}", "off_by_one", (True, False), 2),
    ],
)
def test_partial_credit_is_the_better_of_hidden_cases_and_the_named_misconception(
    tmp_path: Path, partial: str, answer: str, hidden: tuple[bool, ...], expected: float
) -> None:
    course = f"partial: {{{partial}}}\nassignments: {{t: {{}}}}"
    assert (
        points(
            scored(tmp_path, course, [record("ann/a.ipynb", [question(A, answer, 4, hidden)])]),
            "ann",
        )
        == expected
    )


def test_lateness_costs_what_the_rule_says_and_is_said(tmp_path: Path) -> None:
    mine = [
        record(f"{s}/a.ipynb", RIGHT, submitted=t)
        for s, t in (("ann", ON_TIME), ("bob", DAY_LATE), ("cy", TOO_LATE))
    ]
    book = scored(tmp_path, DUE, mine)
    assert [points(book, s) for s in ("ann", "bob", "cy")] == [8, 7.2, 0]
    assert [said(book, s) for s in ("ann", "bob", "cy")] == [
        "",
        "12 h late, cost 0.8 points",
        "17 days 12 h late, after the cutoff: 8 points lost",
    ]


def test_a_time_that_is_not_known_is_pending_only_where_it_could_cost(tmp_path: Path) -> None:
    book = scored(tmp_path, DUE, [record("ann/a.ipynb", RIGHT)])
    assert points(book, "ann") == "pending"
    assert (
        said(book, "ann")
        == "pending: when ann/a.ipynb was handed in is not known: give files.times"
    )
    assert (
        points(scored(tmp_path, DUE.replace("late:", "#"), [record("ann/a.ipynb", RIGHT)]), "ann")
        == 8
    )
    times = f"file,submitted\nann/a.ipynb,{DAY_LATE}\n"
    assert (
        points(
            scored(
                tmp_path,
                DUE + "files: {times: times.csv}",
                [record("ann/a.ipynb", RIGHT)],
                times_csv=times,
            ),
            "ann",
        )
        == 7.2
    )


def test_an_extension_moves_the_due_time_and_the_cutoff(tmp_path: Path) -> None:
    more = (
        "extensions: [{student: ann, assignment: t, by: 2 days, because: ill}, {student: cy,"
        " assignment: t, until: 2026-10-16}]"
    )
    mine = [
        record(f"{s}/a.ipynb", RIGHT, submitted=t)
        for s, t in (("ann", DAY_LATE), ("bob", DAY_LATE), ("cy", TOO_LATE))
    ]
    book = scored(tmp_path, DUE + more, mine)
    assert [points(book, s) for s in ("ann", "bob", "cy")] == [8, 7.2, 4.8]
    assert said(book, "ann") == "extended to 2026-10-04 23:59 (ill)"


def test_what_is_not_handed_in_is_open_until_it_is_due_and_missing_after(tmp_path: Path) -> None:
    more = "files: {roster: roster.csv}\nextensions: [{student: cy, assignment: t, by: 60 days}]"
    roster = "student\nann\nbob\ncy\n"
    mine = [record("ann/a.ipynb", RIGHT, submitted=ON_TIME)]
    before = scored(
        tmp_path, DUE + more, mine, datetime(2026, 10, 7, 21, 59, 59, tzinfo=UTC), roster_csv=roster
    )
    after = scored(
        tmp_path, DUE + more, mine, datetime(2026, 10, 7, 22, 0, tzinfo=UTC), roster_csv=roster
    )
    assert [points(before, s) for s in ("ann", "bob", "cy")] == [8, "open", "open"]
    assert [points(after, s) for s in ("ann", "bob", "cy")] == [8, 0, "open"]
    assert [totals(after)[s].status for s in ("ann", "bob", "cy")] == ["graded", "graded", "none"]
    assert after.complete


def test_an_assignment_without_any_result_counts_for_nobody(tmp_path: Path) -> None:
    """Otherwise a class would have zeros because an instructor has not graded yet."""
    book = scored(tmp_path, "assignments: {t: {}, u: {}}", [record("ann/a.ipynb", RIGHT)])
    assert list(totals(book)["ann"].outcomes) == ["t"]
    assert book.notes == ("u: there are no results of it yet, so it counts for nobody.",)


class TestSeveralSubmissions:
    """One student, several files."""

    MINE = (
        record("ann/1.ipynb", RIGHT, submitted=ON_TIME),
        record("ann/2.ipynb", HALF, submitted="2026-10-02T21:30:00+02:00"),
    )

    @pytest.mark.parametrize(("counts", "expected"), [("latest", 4), ("best", 8)])
    def test_the_latest_or_the_best_counts(
        self, tmp_path: Path, counts: str, expected: float
    ) -> None:
        book = scored(tmp_path, f"{PLAIN}\nsubmissions: {{counts: {counts}}}", self.MINE)
        assert points(book, "ann") == expected
        assert (
            said(book, "ann")
            == {
                "latest": "latest of 2 submissions: ann/2.ipynb",
                "best": "best of 2 submissions, each of them another guess: ann/1.ipynb",
            }[counts]
        )

    def test_the_best_is_the_best_after_lateness(self, tmp_path: Path) -> None:
        mine = [
            record("ann/1.ipynb", HALF, submitted=ON_TIME),
            record("ann/2.ipynb", RIGHT, submitted=TOO_LATE),
        ]
        assert points(scored(tmp_path, f"{DUE}submissions: {{counts: best}}", mine), "ann") == 4

    def test_without_times_the_latest_is_not_guessed(self, tmp_path: Path) -> None:
        mine = [record("ann/1.ipynb", RIGHT), record("ann/2.ipynb", HALF)]
        book = scored(tmp_path, PLAIN, mine)
        assert points(book, "ann") == "pending"
        assert "which of ann/1.ipynb, ann/2.ipynb is the latest is not known" in said(book, "ann")
        assert "latest of 2" not in said(book, "ann")
        same = [
            r | {name: mine[0][name] for name in ("digests", "questions", "points")} for r in mine
        ]
        assert points(scored(tmp_path, PLAIN, same), "ann") == 8

    def test_a_file_that_cannot_be_read_is_passed_over_if_another_can(self, tmp_path: Path) -> None:
        mine = [record("ann/1.ipynb", RIGHT), record("ann/2.ipynb", status="unreadable")]
        book = scored(tmp_path, PLAIN, mine)
        assert points(book, "ann") == 8
        assert said(book, "ann") == "ann/2.ipynb cannot be read: passed over"


@pytest.mark.parametrize(
    ("policy", "expected", "complete"), [("pending", "pending", False), ("zero", 0, True)]
)
def test_an_unreadable_file_waits_unless_the_course_says_zero(
    tmp_path: Path, policy: str, expected: object, complete: bool
) -> None:
    mine = [record("ann/a.ipynb", RIGHT), record("bob/03_t.ipynb", topic="", status="unreadable")]
    book = scored(tmp_path, f"{PLAIN}\nsubmissions: {{unreadable: {policy}}}", mine)
    assert (points(book, "bob"), book.complete, book.faults) == (expected, complete, False)


def test_the_graders_own_fault_is_never_a_zero(tmp_path: Path) -> None:
    book = scored(
        tmp_path, PLAIN, [record("ann/a.ipynb", RIGHT), record("bob/a.ipynb", status="internal")]
    )
    assert (points(book, "bob"), book.faults) == ("pending", True)
    assert said(book, "bob") == "pending: the grader failed on bob/a.ipynb: grade it again"


def test_an_exercise_that_a_result_does_not_have_is_pending(tmp_path: Path) -> None:
    book = scored(
        tmp_path, PLAIN, [record("ann/a.ipynb", RIGHT), record("bob/a.ipynb", {A: "right"})]
    )
    assert points(book, "bob") == "pending"
    assert said(book, "bob") == "pending: t-b was not judged in bob/a.ipynb: grade it again"


def test_results_that_disagree_about_points_are_refused_until_the_course_says(
    tmp_path: Path,
) -> None:
    mine = [
        record("ann/a.ipynb", [question(A, "right", 4)]),
        record("bob/a.ipynb", [question(A, "right", 6)]),
    ]
    with pytest.raises(
        ValueError,
        match=re.escape(
            "exercises.t-a: results are out of 4 and 6 points; say which with `t-a: 6`"
        ),
    ):
        scored(tmp_path, PLAIN, mine)
    book = scored(tmp_path, f"assignments: {{t: {{exercises: {{{A}: 6}}}}}}", mine)
    assert [points(book, s) for s in ("ann", "bob")] == [6, 6]


class TestGroups:
    """Work of one counts for all."""

    COURSE = PLAIN + "\ngroups: {team: [ann, bob]}"

    @pytest.mark.parametrize("folder", ["ann", "bob", "team"])
    def test_a_members_or_the_groups_work_counts_for_all(self, tmp_path: Path, folder: str) -> None:
        book = scored(
            tmp_path, self.COURSE, [record(f"{folder}/a.ipynb", RIGHT), record("cy/a.ipynb", HALF)]
        )
        assert {s: points(book, s) for s in totals(book)} == {"ann": 8, "bob": 8, "cy": 4}

    def test_each_member_has_an_own_extension(self, tmp_path: Path) -> None:
        course = (
            DUE
            + "groups: {team: [ann, bob]}\nextensions: [{student: bob, assignment: t, by: 1 day}]"
        )
        book = scored(tmp_path, course, [record("ann/a.ipynb", RIGHT, submitted=DAY_LATE)])
        assert [points(book, s) for s in ("ann", "bob")] == [7.2, 8]

    def test_a_group_of_one_assignment_is_none_in_another(self, tmp_path: Path) -> None:
        course = (
            "groups: {team: {members: [ann, bob], assignments: [u]}}\nassignments: {t: {}, u: {}}"
        )
        book = scored(
            tmp_path, course, [record("ann/t.ipynb", RIGHT), record("ann/u.ipynb", RIGHT, "u")]
        )
        assert [points(book, "bob", t) for t in ("t", "u")] == [0, 8]

    def test_points_by_hand_for_the_group_count_for_all(self, tmp_path: Path) -> None:
        course = MANUAL + "\ngroups: {team: [ann, bob]}"
        book = scored(
            tmp_path, course, [record("ann/a.ipynb", RIGHT)], manual_csv=HAND + "team,essay,1,,\n"
        )
        assert [points(book, s) for s in ("ann", "bob")] == [9, 9]

    @pytest.mark.parametrize(
        ("rows", "cy"),
        [
            ("ann,essay,1,,\n", 9),
            ("ann,essay,1,,\nbob,essay,1,,\n", 9),
            ("ann,essay,1,,\nbob,essay,2,,\n", "pending"),
        ],
    )
    def test_points_by_hand_for_one_member_count_for_all_who_have_no_others(
        self, tmp_path: Path, rows: str, cy: object
    ) -> None:
        course = MANUAL + "\ngroups: {team: [ann, bob, cy]}"
        book = scored(tmp_path, course, [record("ann/a.ipynb", RIGHT)], manual_csv=HAND + rows)
        assert [points(book, s) for s in ("ann", "cy")] == [9, cy]


class TestByHand:
    """A cell graded by hand is pending until it is, and pending is not zero."""

    def test_it_is_pending_and_so_is_the_total_and_both_say_what_for(self, tmp_path: Path) -> None:
        book = scored(
            tmp_path, MANUAL, [record("ann/a.ipynb", RIGHT)], manual_csv=HAND + "ann,essay,,,\n"
        )
        assert points(book, "ann") == "pending"
        assert totals(book)["ann"].percent is None
        assert totals(book)["ann"].waiting == ("t: essay is not graded by hand yet",)
        assert not book.complete

    def test_its_points_count_and_its_comment_is_passed_on(self, tmp_path: Path) -> None:
        book = scored(
            tmp_path,
            MANUAL,
            [record("ann/a.ipynb", RIGHT)],
            manual_csv=HAND + "ann,essay,1.5,well said,\n",
        )
        assert (points(book, "ann"), said(book, "ann")) == (9.5, "essay: well said")

    def test_points_for_one_version_of_the_work_do_not_count_for_another(
        self, tmp_path: Path
    ) -> None:
        mine = [record("ann/a.ipynb", RIGHT)]
        ours, other = digest("ann/a.ipynb")[:16], digest("other")[:16]
        assert (
            points(scored(tmp_path, MANUAL, mine, manual_csv=f"{HAND}ann,essay,2,,{ours}\n"), "ann")
            == 10
        )
        book = scored(tmp_path, MANUAL, mine, manual_csv=f"{HAND}ann,essay,2,,{other}\n")
        assert (
            said(book, "ann") == "pending: essay was graded by hand for another version of the work"
        )

    def test_more_points_than_it_has_are_refused_with_the_line(self, tmp_path: Path) -> None:
        with pytest.raises(
            ValueError,
            match=re.escape("manual.csv, line 2: exercise: 3 points are more than the 2 of essay"),
        ):
            scored(
                tmp_path,
                MANUAL,
                [record("ann/a.ipynb", RIGHT)],
                manual_csv=HAND + "ann,essay,3,,\n",
            )

    def test_points_may_be_there_before_any_result_is(self, tmp_path: Path) -> None:
        course = MANUAL.replace("{t:", "{u: {}, t:")
        book = scored(
            tmp_path,
            course,
            [record("ann/u.ipynb", RIGHT, "u")],
            manual_csv=HAND + "ann,essay,2,,\n",
        )
        assert list(totals(book)["ann"].outcomes) == ["u"]

    def test_an_assignment_may_be_graded_by_hand_alone(self, tmp_path: Path) -> None:
        course = (
            "files: {manual: manual.csv, roster: roster.csv}\nassignments: {talk: {exercises: {},"
            " by_hand: {talk: 10}}}"
        )
        book = scored(
            tmp_path,
            course,
            [],
            manual_csv=HAND + "ann,talk,7,,\n",
            roster_csv="student\nann\nbob\n",
        )
        assert [points(book, s, "talk") for s in ("ann", "bob")] == [7, "pending"]


class TestExcused:
    """Excusing never costs anything."""

    def test_an_excused_assignment_leaves_the_percentage_alone(self, tmp_path: Path) -> None:
        course = (
            "assignments: {t: {}, u: {}}\nexcused: [{student: ann, assignment: u, because: ill}]"
        )
        book = scored(
            tmp_path, course, [record("ann/t.ipynb", HALF), record("bob/u.ipynb", RIGHT, "u")]
        )
        assert (points(book, "ann", "u"), said(book, "ann", "u")) == (
            "excused",
            "not handed in; excused: ill",
        )
        assert (totals(book)["ann"].points, totals(book)["ann"].out_of) == (4, 8)

    def test_work_that_is_there_counts_if_it_helps(self, tmp_path: Path) -> None:
        course = "assignments: {t: {}, u: {}}\nexcused: [{student: ann, assignment: u}]"
        helps = scored(
            tmp_path, course, [record("ann/t.ipynb", HALF), record("ann/u.ipynb", RIGHT, "u")]
        )
        harms = scored(
            tmp_path, course, [record("ann/t.ipynb", RIGHT), record("ann/u.ipynb", HALF, "u")]
        )
        assert [totals(b)["ann"].percent for b in (helps, harms)] == [75, 100]
        assert "counts all the same, because it helps" in said(helps, "ann", "u")
        assert "excused, so it does not count" in said(harms, "ann", "u")

    def test_an_excused_exercise_leaves_what_the_assignment_is_worth(self, tmp_path: Path) -> None:
        course = f"{PLAIN}\nexcused: [{{student: ann, assignment: t, exercise: {B}}}]"
        book = scored(tmp_path, course, [record("ann/a.ipynb", HALF)])
        assert (points(book, "ann"), said(book, "ann")) == (8, "t-b: excused")

    def test_an_excused_cell_is_not_waited_for(self, tmp_path: Path) -> None:
        course = MANUAL + "\nexcused: [{student: ann, assignment: t, exercise: essay}]"
        assert (
            points(scored(tmp_path, course, [record("ann/a.ipynb", RIGHT)], manual_csv=HAND), "ann")
            == 10
        )

    def test_who_is_excused_from_everything_has_no_total(self, tmp_path: Path) -> None:
        book = scored(
            tmp_path,
            f"{PLAIN}\nexcused: [{{student: ann, assignment: t}}]",
            [record("ann/a.ipynb", {A: "wrong"})],
        )
        assert (totals(book)["ann"].status, totals(book)["ann"].percent) == ("none", None)


class TestDropped:
    """The lowest is the one whose absence helps most."""

    def test_the_lowest_assignment_is_dropped_and_said(self, tmp_path: Path) -> None:
        mine = [record("ann/t.ipynb", HALF), record("ann/u.ipynb", RIGHT, "u")]
        book = scored(tmp_path, "drop_lowest: 1\nassignments: {t: {}, u: {}}", mine)
        assert (totals(book)["ann"].points, totals(book)["ann"].out_of) == (8, 8)
        assert (points(book, "ann"), said(book, "ann")) == (4, "dropped")

    def test_not_the_lowest_percentage_but_the_dearest_loss_goes(self, tmp_path: Path) -> None:
        """1 of 4 is lower than 10 of 20 and dropping it helps less: (10+8)/28 against (1+8)/12."""
        course = (
            f"drop_lowest: 1\nassignments: {{t: {{exercises: {{{A}: 1, {B}: 3}}}}, u: {{points:"
            " 20}, v: {}}"
        )
        mine = [
            record("ann/t.ipynb", HALF),
            record("ann/u.ipynb", HALF, "u"),
            record("ann/v.ipynb", RIGHT, "v"),
        ]
        book = scored(tmp_path, course, mine)
        assert (totals(book)["ann"].points, totals(book)["ann"].out_of) == (9, 12)

    def test_the_lowest_exercise_of_an_assignment_is_dropped_and_said(self, tmp_path: Path) -> None:
        book = scored(
            tmp_path,
            "assignments: {t: {drop_lowest: 1}}",
            [record("ann/a.ipynb", {A: "right", B: "wrong", C: "wrong"})],
        )
        assert (points(book, "ann"), said(book, "ann")) == (6, "t-b: dropped")


class TestOverrides:
    """Decisions keyed by the submission's digest hold through every regrade, and for no other
    submission."""

    COURSE = "files: {overrides: overrides.yml}\n"

    def override(self, of: str, exercise: str, points: str) -> str:
        return f"{digest(of)[:12]}: {{{exercise}: {{points: {points}, because: units}}}}"

    def test_points_of_an_exercise_are_replaced_before_lateness(self, tmp_path: Path) -> None:
        mine = [record("ann/a.ipynb", HALF, submitted=DAY_LATE)]
        book = scored(
            tmp_path, self.COURSE + DUE, mine, overrides_yml=self.override("ann/a.ipynb", B, "2")
        )
        assert points(book, "ann") == 5.4
        assert "t-b: set by hand: units" in said(book, "ann")

    def test_points_of_the_whole_are_final_also_for_what_cannot_be_read(
        self, tmp_path: Path
    ) -> None:
        mine = [
            record("bob/a.ipynb", RIGHT, submitted=ON_TIME),
            record("ann/a.ipynb", status="unreadable", submitted=TOO_LATE),
        ]
        book = scored(
            tmp_path,
            self.COURSE + DUE,
            mine,
            overrides_yml=self.override("ann/a.ipynb", "all", "3"),
        )
        assert (points(book, "ann"), said(book, "ann")) == (3, "set by hand: units")

    def test_it_holds_after_a_regrade_and_not_for_changed_work(self, tmp_path: Path) -> None:
        text = self.override("ann/a.ipynb", B, "4")
        again = record("ann/a.ipynb", {A: "wrong", B: "wrong"}, seed=2)
        assert (
            points(scored(tmp_path, self.COURSE + PLAIN, [again], overrides_yml=text), "ann") == 4
        )
        changed = again | {"digests": again["digests"] | {"submission": digest("changed")}}
        book = scored(tmp_path, self.COURSE + PLAIN, [changed], overrides_yml=text)
        assert points(book, "ann") == 0
        assert "no file has this digest now" in book.notes[0]

    @pytest.mark.parametrize(
        ("exercise", "says"),
        [(B, "5 points are more than the 4 of t-b"), ("t-z", "there is no exercise 't-z'")],
    )
    def test_one_that_cannot_be_meant_is_refused(
        self, tmp_path: Path, exercise: str, says: str
    ) -> None:
        with pytest.raises(ValueError, match=re.escape(says)):
            scored(
                tmp_path,
                self.COURSE + PLAIN,
                [record("ann/a.ipynb", HALF)],
                overrides_yml=self.override("ann/a.ipynb", exercise, "5"),
            )


@pytest.mark.parametrize(
    ("rule", "file", "student"),
    [
        ("folder", "ann/x/03.ipynb", "ann"),
        ("folder", "ann.ipynb", "ann"),
        ("file", "x/ann.ipynb", "ann"),
        (r"'^[^_]+_(?:LATE_)?(?P<student>\d+)_'", "bosal_LATE_123_456_03.ipynb", "123"),
    ],
)
def test_whose_file_it_is_comes_from_its_path(
    tmp_path: Path, rule: str, file: str, student: str
) -> None:
    book = scored(tmp_path, f"{PLAIN}\nsubmissions: {{student: {rule}}}", [record(file, RIGHT)])
    assert list(totals(book)) == [student]


def test_a_record_that_names_its_student_needs_no_rule(tmp_path: Path) -> None:
    assert list(totals(scored(tmp_path, PLAIN, [record("x/a.ipynb", RIGHT, student="ann")]))) == [
        "ann"
    ]


def test_files_of_nobody_in_the_roster_are_told_and_count_for_nobody(tmp_path: Path) -> None:
    course = f"{PLAIN}\nfiles: {{roster: roster.csv}}"
    book = scored(
        tmp_path,
        course,
        [record("ann/a.ipynb", RIGHT), record("eve/a.ipynb", RIGHT)],
        roster_csv="student\nann\n",
    )
    assert (list(totals(book)), book.strangers, book.complete) == (["ann"], ("eve/a.ipynb",), False)


def test_the_last_record_of_a_file_counts_and_a_torn_last_line_is_passed_over(
    tmp_path: Path,
) -> None:
    from twophase.grading.results import reader
    from twophase.grading.scores import gradebook

    (tmp_path / "course.yml").write_text(PLAIN)
    path = tmp_path / "results.jsonl"
    scored(
        tmp_path,
        PLAIN,
        [record("ann/a.ipynb", {A: "wrong"}), record("ann/a.ipynb", {A: "right"}, seed=2)],
    )
    path.write_bytes(path.read_bytes() + b'{"schema": 1, "file"')
    before = path.read_bytes()
    scheme, beside = gradebook.load_course(tmp_path / "course.yml")
    assert (
        points(gradebook.make_gradebook(scheme, beside, reader.latest_records(path), NOW), "ann")
        == 4
    )
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [{"key": "abc"}, {"status": "fine"}, {"file": 3}, {"digests": {}}, {"questions": [{}]}]
    + [
        {"questions": [question(A, "right") | c]}
        for c in ({"points": 5}, {"points": -1}, {"points": float("nan")}, {"cases": [{}]})
    ],
)
def test_a_line_that_is_no_result_is_one_sentence(
    tmp_path: Path, change: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match=r"line 2 of .* is no result of this version"):
        scored(
            tmp_path, PLAIN, [record("ann/a.ipynb", RIGHT), record("bob/a.ipynb", RIGHT) | change]
        )


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "  =1", "\N{NO-BREAK SPACE}=1", "\uff1d1", "\n=1"],
)
def test_no_cell_begins_like_a_formula(text: str) -> None:
    assert safe(text).startswith("'")
    assert safe("a=1") == "a=1"


def test_a_misspelt_misconception_is_told_since_it_would_give_nobody_anything(
    tmp_path: Path,
) -> None:
    course = (
        "partial: {misconceptions: {weights_left_out: 50%, wieghts_left_out: 50%}}\nassignments:"
        " {kv_cache: {exercises: {kv_cache-max_batch: {partial: {misconceptions: {nonsense: 10"
        " %}}}}}, t: {}}"
    )
    only = course.replace(", t: {}", "")
    mine = [record("ann/a.ipynb", {"kv_cache-max_batch": "right"}, topic="kv_cache")]
    notes = scored(tmp_path, only, mine).notes
    assert len(notes) == 2
    assert "kv_cache.kv_cache-max_batch: no check names the misconception 'nonsense'" in notes[0]
    assert (
        "no check names the misconception 'wieghts_left_out'; did you mean 'weights_left_out'?"
        in notes[1]
    )
    # one exercise that is not the course's own may have a misconception of this name
    assert "wieghts" not in "".join(scored(tmp_path, course, mine).notes)


@pytest.mark.parametrize(("policy", "expected"), [("counts", 8), ("pending", "pending")])
def test_an_answer_that_is_right_only_by_itself_counts_unless_the_course_wants_to_look(
    tmp_path: Path, policy: str, expected: object
) -> None:
    mine = [record("ann/a.ipynb", [question(A, "right"), {**question(B, "right"), "alone": True}])]
    book = scored(tmp_path, f"{PLAIN}\nsubmissions: {{right_alone: {policy}}}", mine)
    assert points(book, "ann") == expected
    assert ("right only by itself" in said(book, "ann")) == (policy == "pending")


def test_a_misspelt_exercise_that_somebody_is_excused_from_is_told(tmp_path: Path) -> None:
    course = f"{PLAIN}\nexcused: [{{student: ann, assignment: t, exercise: {A}x}}]"
    (note,) = scored(tmp_path, course, [record("ann/a.ipynb", RIGHT)]).notes
    assert f"excused[1].exercise: there is no exercise '{A}x'; did you mean '{A}'?" in note


def test_times_of_files_that_nobody_handed_in_are_told(tmp_path: Path) -> None:
    times = "file,submitted\nann/a.ipynb,2026-10-02 20:00\nanne/a.ipynb,2026-10-02 20:00\n"
    course = f"{DUE}files: {{times: times.csv}}"
    (note,) = scored(tmp_path, course, [record("ann/a.ipynb", RIGHT)], times_csv=times).notes
    assert "no stored file has 1 of 2 names, such as 'anne/a.ipynb'" in note


def test_what_cannot_be_read_and_says_of_no_assignment_is_a_zero_in_none(tmp_path: Path) -> None:
    course = "assignments: {t: {}, u: {}}"
    mine = [record(f"bob/{t}.ipynb", RIGHT, topic=t) for t in ("t", "u")]
    lost = [
        record(f"{who}/answers.py", topic="", status="unreadable", student=who)
        for who in ("ann", "bob", "cy")
    ]
    book = scored(tmp_path, course, [*mine, *lost, record("cy/t.ipynb", RIGHT)])
    assert [points(book, "ann", t) for t in ("t", "u")] == ["pending", "pending"]
    assert [points(book, "bob", t) for t in ("t", "u")] == [8, 8]
    assert [points(book, "cy", t) for t in ("t", "u")] == [8, "pending"]
    assert (book.strangers, book.complete) == ((), False)
    assert "bob/answers.py: of no assignment, as it seems: passed over." in book.notes


def test_exercises_inside_a_notebook_of_another_assignment_wait_and_are_no_zero(
    tmp_path: Path,
) -> None:
    course = "assignments: {t: {}, u: {}}"
    flags = [{"name": "other_topic", "where": "u", "message": "said to the student"}]
    mine = [record(f"{who}/t.ipynb", RIGHT, flags=flags) for who in ("ann", "bob")]
    apart = [record("bob/u.ipynb", RIGHT, topic="u"), record("cy/t.ipynb", RIGHT)]
    book = scored(tmp_path, course, [*mine, *apart])
    assert [points(book, "ann", t) for t in ("t", "u")] == [8, "pending"]
    assert "ann/t.ipynb has exercises of it inside" in said(book, "ann", "u")
    assert [points(book, "bob", t) for t in ("t", "u")] == [8, 8]
    assert [points(book, "cy", t) for t in ("t", "u")] == [8, 0]
