"""What holds for every class and every course file: nothing that is meant to help a student ever
costs a point."""

from __future__ import annotations

import itertools
import random
import re
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

from draws import draws
from grading_course_tools import NOW, question, record
from hypothesis import assume, given
from hypothesis import strategies as st

from twophase.grading.course.by_hand_file import HandScore
from twophase.grading.course.deadlines import Due, Duration
from twophase.grading.course.extensions import Excusal, Extension
from twophase.grading.course.lateness import LateRule
from twophase.grading.course.scheme import (
    Assignment,
    ExerciseRule,
    Partial,
    Scheme,
    Submissions,
)
from twophase.grading.reports import exports
from twophase.grading.results.records import Record
from twophase.grading.scores import gradebook
from twophase.grading.scores.dropping import Weighted, highest_ratio, ratio
from twophase.grading.scores.gradebook import CourseFiles, Gradebook, Total
from twophase.grading.scores.rubric import ManualGrades

ZONE = ZoneInfo("Europe/Berlin")
TOPICS, STUDENTS = ("t", "u", "v"), ("ann", "bob", "cy")
QUICK = draws(40)

START = datetime(2026, 10, 1, tzinfo=UTC)
ANSWERS = ("right", "right", "wrong", "not_yet", "failed", "off_by_one")


def share(rng: random.Random) -> Fraction:
    return Fraction(rng.randint(0, 10), 10)


def moment(rng: random.Random) -> datetime:
    return START + timedelta(minutes=rng.randint(0, 50 * 1440))


def some(rng: random.Random) -> Fraction:
    return Fraction(rng.randint(1, 8))


def assignment(rng: random.Random, topic: str, extra: bool) -> Assignment:
    partial = Partial(share(rng), {"off_by_one": share(rng)} if rng.random() < 0.5 else {})
    rules = {f"{topic}-{k}": ExerciseRule(some(rng), partial, extra and k == 2) for k in range(3)}
    late = LateRule(
        per_day=share(rng),
        of=rng.choice(("earned", "possible")),
        grace=Duration(rest=timedelta(minutes=rng.randint(0, 90))),
        floor=share(rng),
        cutoff=rng.choice((None, Duration(rng.randint(1, 20)))),
    )
    return Assignment(
        topic,
        topic,
        due=Due(moment(rng), ZONE) if rng.random() < 0.7 else None,
        late=late,
        points=some(rng) if rng.random() < 0.5 else None,
        exercises=rules,
        by_hand=(
            {f"{topic}-hand": ExerciseRule(some(rng), by_hand=True)} if rng.random() < 0.5 else {}
        ),
        drop_lowest=rng.randint(0, 2),
    )


def submissions(rng: random.Random) -> list[Record]:
    """Up to two files for each student and assignment, the second perhaps broken, a few without a
    time."""
    found = []
    for who, topic, n in itertools.product(STUDENTS, TOPICS, range(2)):
        status = rng.choice(
            ("ok", "ok", "none", "none", "unreadable", "internal")
            if n
            else ("ok", "ok", "ok", "none")
        )
        asked = [
            question(
                f"{topic}-{k}", rng.choice(ANSWERS), hidden=(rng.random() < 0.5, rng.random() < 0.5)
            )
            for k in range(3)
        ]
        if status != "none":
            sent = moment(rng).isoformat() if rng.random() < 0.8 else ""
            found.append(record(f"{who}/{topic}{n}.ipynb", asked, topic, status, sent))
    return found


def classes(extra: bool = False) -> st.SearchStrategy[tuple[Scheme, CourseFiles, list[Record]]]:
    """A class of three with three assignments, drawn from one seed: many small draws of hypothesis'
    own would take seconds each."""

    def make(seed: int) -> tuple[Scheme, CourseFiles, list[Record]]:
        rng = random.Random(seed)
        scheme = Scheme(
            time_zone=ZONE,
            assignments={t: assignment(rng, t, extra) for t in TOPICS},
            submissions=Submissions(
                counts=rng.choice(("best", "latest")), unreadable=rng.choice(("pending", "zero"))
            ),
            drop_lowest=rng.randint(0, 2),
            excused=tuple(excusal(rng) for _ in range(rng.randint(0, 2))),
        )
        hand = [
            HandScore(who, cell, Fraction(rng.randint(0, int(rule.points or 0))))
            for a in scheme.assignments.values()
            for cell, rule in a.by_hand.items()
            for who in STUDENTS
            if rng.random() < 0.9
        ]
        return scheme, CourseFiles((), ManualGrades(scheme, hand), {}), submissions(rng)

    return st.integers(0, 2**32).map(make)


def excusal(rng: random.Random) -> Excusal:
    topic, exercise = rng.choice(TOPICS), rng.choice(("", "0", "1", "hand"))
    return Excusal(rng.choice(STUDENTS), topic, f"{topic}-{exercise}" if exercise else "")


def excusals() -> st.SearchStrategy[Excusal]:
    return st.integers(0, 2**32).map(lambda seed: excusal(random.Random(seed)))


def scored(
    scheme: Scheme, beside: CourseFiles, found: list[Record], now: datetime = NOW
) -> Gradebook:
    return gradebook.make_gradebook(
        scheme, replace(beside, manual=replace(beside.manual, scheme=scheme)), found, now
    )


def percents(book: Gradebook) -> dict[str, Total]:
    return {t.student.key: t for t in book.totals}


@given(classes())
@QUICK
def test_no_score_is_negative_or_above_the_maximum(
    made: tuple[Scheme, CourseFiles, list[Record]],
) -> None:
    book = scored(*made)
    for o in book.outcomes:
        assert o.points is None or 0 <= o.points <= o.worth
        assert o.cost >= 0
        assert (o.points is None) == (
            o.status in ("pending", "open")
            or (o.free and o.status == "excused" and o.points is None)
        )
    for t in book.totals:
        assert t.percent is None or 0 <= t.percent <= 100


@given(classes(extra=True))
@QUICK
def test_only_declared_extra_credit_goes_above_the_maximum_and_never_below_zero(
    made: tuple[Scheme, CourseFiles, list[Record]],
) -> None:
    for o in scored(*made).outcomes:
        extra = sum(c.item.out_of for c in o.exercises if c.item.rule.extra)
        regular = sum(c.item.out_of for c in o.exercises if c.kept and not c.item.rule.extra)
        assert o.points is None or o.points >= 0
        assert (
            o.points is None
            or not regular
            or o.points <= o.worth * (1 + Fraction(extra, 1) / regular)
        )


@given(classes(), st.randoms(use_true_random=False))
@QUICK
def test_scoring_twice_and_in_another_order_gives_the_same(
    made: tuple[Scheme, CourseFiles, list[Record]], rng: random.Random
) -> None:
    scheme, beside, found = made
    first = scored(scheme, beside, found)
    shuffled = list(found)
    rng.shuffle(shuffled)
    second = scored(scheme, beside, shuffled)
    assert (
        exports.table(first)
        == exports.table(second)
        == exports.table(scored(scheme, beside, found))
    )
    assert first.totals == second.totals


@given(classes())
@QUICK
def test_one_students_score_does_not_depend_on_the_others(
    made: tuple[Scheme, CourseFiles, list[Record]],
) -> None:
    scheme, beside, found = made
    alone = [r for r in found if r["file"].startswith("ann/")]
    assume({r["topic"] for r in alone if r["questions"]} == set(TOPICS))
    assert (
        percents(scored(scheme, beside, alone))["ann"]
        == percents(scored(scheme, beside, found))["ann"]
    )


@given(classes(), st.sampled_from(STUDENTS), st.sampled_from(TOPICS), st.integers(0, 30))
@QUICK
def test_an_extension_never_lowers_a_score(
    made: tuple[Scheme, CourseFiles, list[Record]], who: str, topic: str, days: int
) -> None:
    scheme, beside, found = made
    more = replace(
        scheme, extensions=(*scheme.extensions, Extension(who, topic, by=Duration(days)))
    )
    for now in (NOW, datetime(2026, 11, 1, tzinfo=UTC)):
        before, after = scored(scheme, beside, found, now), scored(more, beside, found, now)
        for a, b in zip(before.outcomes, after.outcomes, strict=True):
            assert a.points is None or b.points is None or b.points >= a.points
            assert (a.student, a.topic) == (who, topic) or replace(
                a, counted=True, notes=()
            ) == replace(b, counted=True, notes=())
        for old, new in zip(before.totals, after.totals, strict=True):
            assert old.percent is None or new.percent is None or new.percent >= old.percent


@given(classes(), excusals())
@QUICK
def test_an_excusal_never_lowers_a_percentage_nor_makes_anything_pending(
    made: tuple[Scheme, CourseFiles, list[Record]], one: Excusal
) -> None:
    scheme, beside, found = made
    before = scored(scheme, beside, found)
    assume(
        not one.exercise
        or one.exercise in {c.item.id for o in before.outcomes for c in o.exercises}
    )
    after = scored(replace(scheme, excused=(*scheme.excused, one)), beside, found)
    for old, new in zip(before.totals, after.totals, strict=True):
        assert old.status == "pending" or new.status != "pending"
        assert old.percent is None or new.percent is None or new.percent >= old.percent
        assert len(new.waiting) <= len(old.waiting)


@given(classes(), st.booleans())
@QUICK
def test_dropping_more_never_lowers_a_percentage(
    made: tuple[Scheme, CourseFiles, list[Record]], exercises: bool
) -> None:
    scheme, beside, found = made
    if exercises:
        more = replace(
            scheme,
            assignments={
                t: replace(a, drop_lowest=a.drop_lowest + 1) for t, a in scheme.assignments.items()
            },
        )
    else:
        more = replace(scheme, drop_lowest=scheme.drop_lowest + 1)
    for old, new in zip(
        scored(scheme, beside, found).totals, scored(more, beside, found).totals, strict=True
    ):
        assert (old.percent is None) == (new.percent is None)
        assert old.percent is None or new.percent is None or new.percent >= old.percent


@given(classes())
@QUICK
def test_a_total_is_pending_exactly_when_something_is_and_says_what(
    made: tuple[Scheme, CourseFiles, list[Record]],
) -> None:
    book = scored(*made)
    for t in book.totals:
        waits = [o for o in t.outcomes.values() if o.status == "pending"]
        assert (t.status == "pending") == bool(waits) == bool(t.waiting)
        assert all(o.waiting and o.points is None for o in waits)
        assert not waits or t.percent is None
    assert book.complete == all(t.status != "pending" for t in book.totals)


items = st.lists(
    st.builds(
        Weighted, st.integers(0, 10).map(Fraction), st.integers(0, 10).map(Fraction), st.booleans()
    ),
    min_size=1,
    max_size=6,
)


@given(items, st.integers(0, 3))
@draws(150)
def test_what_is_left_out_is_the_best_choice_of_all(found: list[Weighted], drop: int) -> None:
    """Against every subset, tried one by one."""
    assume(any(i.out_of for i in found))
    tried = []
    for size in range(len(found) + 1):
        for out in itertools.combinations(range(len(found)), size):
            kept = [i for n, i in enumerate(found) if n not in out]
            gone = [found[n] for n in out]
            if (
                sum(not i.free for i in gone) <= drop
                and all(i.out_of for i in gone)
                and any(i.out_of for i in kept)
            ):
                tried.append(ratio(kept))
    kept_now = highest_ratio(found, drop)
    assert ratio([found[n] for n in kept_now]) == max(tried)
    assert sum(not i.free for n, i in enumerate(found) if n not in kept_now) <= drop


@given(st.lists(st.text(max_size=12), min_size=1, max_size=8))
@QUICK
def test_no_text_makes_a_csv_cell_a_formula_or_breaks_its_row(texts: list[str]) -> None:
    import csv

    with tempfile.TemporaryDirectory() as folder:
        path = exports._write(Path(folder) / "a.csv", [texts], "utf-8")
        with path.open(encoding="utf-8", newline="") as file:
            (row,) = list(csv.reader(file)) or [[""] * len(texts)]
    assert len(row) == len(texts)
    assert not any(re.match(r"[\s\u00a0]*[=+\-@\uff0b\uff0d\uff1d\uff20]", cell) for cell in row)
