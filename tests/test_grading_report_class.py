"""report.html: the numbers of a class are right, the page is whole for one student and for a
thousand, and nobody can write into it."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from draws import draws
from grading_course_tools import question, record, scored
from hypothesis import given
from hypothesis import strategies as st

from twophase.grading.reports import class_report, class_stats, pages
from twophase.grading.scores.gradebook import Gradebook

A, B = "t-a", "t-b"
SCRIPT = "<script>alert(1)</script>"
COURSE = "assignments: {t: {}}"


class Page(HTMLParser):
    """The tags of a page, its text outside of the style sheet, and whatever could call out."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text, self.calls, self._style = "", list[str](), False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._style = tag == "style"
        self.calls += [
            f"{k}={v}"
            for k, v in attrs
            if k.startswith("on") or k in ("src", "href", "xlink:href", "style", "action")
        ]

    def handle_data(self, data: str) -> None:
        if self._style:
            self.calls += re.findall(r"url\(|@import", data)
        else:
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        self._style = False


def figures(page: str) -> list[ET.Element]:
    return [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.S)]


def a_class(tmp_path: Path, n: int) -> Gradebook:
    rng = random.Random(n)
    answers = ["right", "right", "wrong", "off_by_one", "not_yet", "failed"]
    found = [
        record(f"s{k}/a.ipynb", {A: rng.choice(answers), B: rng.choice(answers)}) for k in range(n)
    ]
    return scored(tmp_path, COURSE, found)


@pytest.mark.parametrize("n", [1, 2, 1000])
def test_the_page_is_whole_for_a_class_of_any_size(tmp_path: Path, n: int) -> None:
    book = a_class(tmp_path, n)
    page = class_report.page(book)
    seen = Page(page)
    assert f"{n} student{'s' * (n != 1)}, {n} with a final total" in seen.text
    assert not seen.calls
    assert not set(seen.tags) & {"script", "img", "iframe", "link", "base", "form", "object", "a"}
    assert "default-src 'none'" in page
    assert len(page) < 40_000
    assert {
        "Totals",
        "Assignments",
        "Which exercises cost most",
        "Which misconceptions cost most",
    } <= set(re.findall(r"<h2>(.*?)</h2>", page))


def test_a_class_of_nobody_and_of_nothing_final_is_said(tmp_path: Path) -> None:
    pending = scored(
        tmp_path,
        COURSE,
        [record("ann/a.ipynb", {A: "right"}), record("bob/a.ipynb", status="internal")],
    )
    text = Page(class_report.page(pending)).text
    assert "1 waiting for a pending score" in text
    assert "The grader failed on some work" in text
    nobody = scored(tmp_path, COURSE + "\nfiles: {roster: r.csv}", [], r_csv="student\nann\n")
    assert "Nobody has a final total yet." in Page(class_report.page(nobody)).text


def test_every_figure_has_a_text_that_says_what_it_shows(tmp_path: Path) -> None:
    page = class_report.page(a_class(tmp_path, 30))
    names = []
    for figure in figures(page):
        title = next(e for e in figure if e.tag == "title")
        assert figure.get("role") == "img"
        assert figure.get("aria-labelledby") == title.get("id")
        assert re.search(r": .*: \d", title.text or "")
        names.append(title.get("id"))
    assert len(names) == len(set(names)) == 3


def test_nothing_from_results_or_course_file_becomes_markup(tmp_path: Path) -> None:
    asked = [question(f'{SCRIPT}"', SCRIPT) | {"title": SCRIPT, "message": f"{SCRIPT}\x1b\u202e"}]
    course = (
        f"course: '{SCRIPT}'\nassignments: {{t: {{title: '{SCRIPT}'}}, u: {{title: '\"><b>'}}}}"
    )
    found = [
        record(f"{SCRIPT.replace('/', '')}/a.ipynb", asked),
        record("x/u.ipynb", {B: "wrong"}, "u"),
        record("y/v.ipynb", {B: "right"}, SCRIPT),
    ]
    page = class_report.page(scored(tmp_path, course, found))
    seen = Page(page)
    assert not set(seen.tags) & {"script", "b"}
    assert SCRIPT in seen.text
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert figures(page)


def test_no_student_is_named(tmp_path: Path) -> None:
    found = [
        record("annabel/a.ipynb", {A: "wrong"}),
        record("bertram/a.ipynb", status="unreadable"),
    ]
    page = class_report.page(scored(tmp_path, COURSE, found))
    assert "annabel" not in page
    assert "bertram" not in page


def test_points_lost_are_counted_by_exercise_and_by_misconception(tmp_path: Path) -> None:
    """In points of the course: the assignment's 8 are worth 16 there."""
    course = "partial: {misconceptions: {half: 50%}}\nassignments: {t: {points: 16}}"
    found = [
        record("ann/a.ipynb", {A: "half", B: "right"}),
        record("bob/a.ipynb", {A: "half", B: "right"}),
        record("cy/a.ipynb", {A: "off_by_one", B: "not_yet"}),
        record("dee/a.ipynb", {A: "right", B: "right"}),
    ]
    stats = class_stats.class_stats(scored(tmp_path, course, found))
    assert [(e.item.id, e.lost, e.full, e.n, e.lost_share) for e in stats.exercises] == [
        (A, 16, 1, 4, Fraction(1, 2)),
        (B, 8, 3, 4, Fraction(1, 4)),
    ]
    assert [(m.name, m.n, m.lost, m.says) for m in stats.misconceptions] == [
        ("half", 2, 8, "Says half."),
        ("off_by_one", 1, 8, "Says off_by_one."),
    ]


def test_who_handed_nothing_in_does_not_count_against_an_exercise(tmp_path: Path) -> None:
    book = scored(
        tmp_path,
        COURSE + "\nfiles: {roster: r.csv}",
        [record("ann/a.ipynb", {A: "right"})],
        r_csv="student\nann\nbob\n",
    )
    stats = class_stats.class_stats(book)
    assert [(e.n, e.lost) for e in stats.exercises] == [(1, 0)]
    assert stats.assignments[0].statuses == {"graded": 1, "missing": 1}
    assert sorted(stats.percents) == [0, 100]


@given(st.lists(st.integers(0, 400).map(lambda n: Fraction(n, 4)), min_size=1, max_size=30))
@draws(60)
def test_quartiles_are_those_of_numpy(values: list[Fraction]) -> None:
    found = class_stats.spread(values)
    assert found is not None
    theirs = np.percentile([float(v) for v in values], [25, 50, 75])
    assert [found.lower, found.median, found.upper] == pytest.approx(theirs)
    assert found.mean == sum(values) / len(values)
    assert min(values) <= found.lower <= found.median <= found.upper <= max(values)


@given(st.lists(st.integers(0, 600).map(lambda n: Fraction(n, 4)), max_size=30))
@draws(60)
def test_a_histogram_counts_everybody_once_in_the_tenth_they_are_in(values: list[Fraction]) -> None:
    bars = dict(class_stats.histogram(values))
    assert sum(bars.values()) == len(values)
    assert bars["90–100"] == sum(90 <= v <= 100 for v in values)
    assert bars["40–50"] == sum(40 <= v < 50 for v in values)
    assert bars.get("over 100", 0) == sum(v > 100 for v in values)


@pytest.mark.parametrize("counts", [[0] * 10, [1] + [0] * 9, [1000, *range(9)]])
def test_bars_are_as_long_as_their_counts_and_stay_inside(counts: list[int]) -> None:
    bars = [(str(k), n) for k, n in enumerate(counts)]
    drawn = pages.environment().get_template("reports/bars.html").module
    (figure,) = figures(drawn.columns(bars, "x", "score [%]", "students", "a: 1"))  # type: ignore[attr-defined]
    heights = [float(e.get("height", 0)) for e in figure if e.tag == "rect"][1:]
    most = max(counts)
    assert all(
        h == pytest.approx(max(heights) * n / most if most else 0, abs=0.02)
        for h, n in zip(heights, counts, strict=True)
    )
    _, _, width, height = map(float, figure.get("viewBox", "").split())
    for e in figure.iter():
        assert 0 <= float(e.get("x", 0)) <= width
        assert 0 <= float(e.get("y", 0)) <= height


def test_a_bar_beyond_a_thousand_says_its_number_in_digits() -> None:
    bars = [("a", 1234.0), ("b", 12.345), ("c", 999.7)]
    drawn = pages.environment().get_template("reports/bars.html").module
    (figure,) = figures(drawn.rows(bars, "x", "points lost", class_report._told(bars)))  # type: ignore[attr-defined]
    said = [e.text for e in figure.iter() if e.tag == "text"]
    assert said[1:6:2] == ["1234", "12.3", "1000"]
    assert figure[0].text == "a: 1234, b: 12.3, c: 1000"


def test_code_between_backticks_is_code_and_all_else_is_text() -> None:
    said = pages.prose("`a < b` and <b>\x1b")
    assert said == "<code>a &lt; b</code> and &lt;b&gt;\N{REPLACEMENT CHARACTER}"
    assert pages.prose("plain & simple") == "plain &amp; simple"
