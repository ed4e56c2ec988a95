"""Due times hold to the second, in the course's own time zone, also when its clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.grading.course.deadlines import (
    Due,
    Duration,
    exists,
    human,
    instant,
    read_due,
    read_duration,
    read_time,
)
from twophase.grading.course.lateness import Late, LateRule

BERLIN, NEW_YORK, APIA, BEIRUT = (
    ZoneInfo(z) for z in ("Europe/Berlin", "America/New_York", "Pacific/Apia", "Asia/Beirut")
)
ZONES = [
    BERLIN,
    NEW_YORK,
    APIA,
    BEIRUT,
    ZoneInfo("Australia/Lord_Howe"),
    ZoneInfo("UTC"),
    ZoneInfo("Asia/Kathmandu"),
]
PER_DAY = LateRule(per_day=Fraction(1, 10))


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "zone", "last", "first_late"),
    [
        (
            "2026-10-02 23:59",
            BERLIN,
            "2026-10-02T21:59:59.999999",
            "2026-10-02T22:00:00",
        ),  # to the end of the minute
        ("2026-10-02 23:59:59", BERLIN, "2026-10-02T21:59:59.5", "2026-10-02T22:00:00"),
        (
            "2026-10-02",
            BERLIN,
            "2026-10-02T21:59:59",
            "2026-10-02T22:00:00",
        ),  # to the end of the day
        ("2026-10-02T12:00", NEW_YORK, "2026-10-02T16:00:59", "2026-10-02T16:01:00"),
        (
            "2026-10-25 02:30",
            BERLIN,
            "2026-10-25T01:30:59",
            "2026-10-25T01:31:00",
        ),  # comes twice: the second time counts
        ("2026-10-25", BERLIN, "2026-10-25T22:59:59", "2026-10-25T23:00:00"),  # a day of 25 hours
        ("2026-03-29", BERLIN, "2026-03-29T21:59:59", "2026-03-29T22:00:00"),  # and one of 23
        (
            "2026-03-29 01:59",
            BERLIN,
            "2026-03-29T00:59:59",
            "2026-03-29T01:00:00",
        ),  # the minute before clocks jump
        (
            "2026-03-28",
            BEIRUT,
            "2026-03-28T21:59:59",
            "2026-03-28T22:00:00",
        ),  # midnight itself does not exist there
        (
            "2011-12-29",
            APIA,
            "2011-12-30T09:59:59",
            "2011-12-30T10:00:00",
        ),  # the next day was left out
    ],
)
def test_a_due_time_ends_exactly_then(
    written: str, zone: ZoneInfo, last: str, first_late: str
) -> None:
    due = read_due(written, zone)
    assert PER_DAY.lateness(due, utc(last)) == Late()
    assert PER_DAY.lateness(due, utc(first_late)) == Late(timedelta(0), 1)


def test_a_time_that_clocks_jump_over_is_refused() -> None:
    with pytest.raises(ValueError, match="2026-03-29 02:00 does not exist in Europe/Berlin"):
        read_due("2026-03-29 02:00", BERLIN)
    assert read_due("2026-03-29 03:00", BERLIN).end == utc("2026-03-29T01:01:00")


@pytest.mark.parametrize(
    ("due", "handed_in", "days"),
    [
        (
            "2026-03-28 23:59",
            "2026-03-29T22:59:00+02:00",
            1,
        ),  # 22 h later by the sun, one day by the wall
        ("2026-03-28 23:59", "2026-03-29T23:59:59+02:00", 1),
        ("2026-03-28 23:59", "2026-03-30T00:00:00+02:00", 2),
        ("2026-10-24 23:59", "2026-10-25T23:59:59+01:00", 1),  # 25 h later, and still the first day
        ("2026-10-24 23:59", "2026-10-26T00:00:00+01:00", 2),
        ("2026-10-24 23:59", "2026-10-31T23:59:59+01:00", 7),
        (
            "2026-03-28 02:30",
            "2026-03-29T02:59:59+02:00",
            1,
        ),  # a day later is 02:31, which does not exist: the jump counts
        ("2026-03-28 02:30", "2026-03-29T03:00:00+02:00", 2),
    ],
)
def test_days_are_counted_on_the_wall_clock(due: str, handed_in: str, days: int) -> None:
    assert PER_DAY.lateness(read_due(due, BERLIN), datetime.fromisoformat(handed_in)).days == days


def test_within_the_grace_nothing_is_late_and_beyond_it_all_of_it_counts() -> None:
    due = read_due("2026-10-02 12:00", BERLIN)
    rule = LateRule(per_day=Fraction(1, 10), grace=Duration(rest=timedelta(minutes=15)))
    assert rule.lateness(due, due.end + timedelta(minutes=15, microseconds=-1)) == Late()
    assert rule.lateness(due, due.end + timedelta(minutes=15)) == Late(timedelta(minutes=15), 1)
    assert rule.lateness(due, due.end + timedelta(days=1)).days == 2


def test_after_the_cutoff_nothing_is_left_and_a_moment_before_it_the_floor_is() -> None:
    due = read_due("2026-10-24 12:00", BERLIN)
    rule = LateRule(per_day=Fraction(1, 5), floor=Fraction(1, 2), cutoff=Duration(7))
    last = due.end + timedelta(days=7, hours=1)  # clocks go back in between
    before, after = rule.lateness(due, last - timedelta(seconds=1)), rule.lateness(due, last)
    assert (before.days, before.accepted, after.accepted) == (7, True, False)
    assert [rule.left(Fraction(8), Fraction(10), late) for late in (before, after)] == [4, 0]


@pytest.mark.parametrize(
    ("of", "days", "left"),
    [("earned", 1, "7.2"), ("possible", 1, "7"), ("earned", 9, "4"), ("possible", 9, "4")],
)
def test_a_day_costs_its_share_of_what_was_earned_or_of_what_was_possible(
    of: str, days: int, left: str
) -> None:
    rule = LateRule(per_day=Fraction(1, 10), of=of, floor=Fraction(1, 2))  # type: ignore[arg-type]
    assert rule.left(Fraction(8), Fraction(10), Late(timedelta(days=days), days)) == Fraction(left)


def test_without_a_floor_lateness_never_takes_more_than_there_is() -> None:
    rule = LateRule(per_day=Fraction(1, 2), of="possible")
    assert rule.left(Fraction(3), Fraction(10), Late(timedelta(days=1), 1)) == 0


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("15 min", 15), ("1 minute", 1), ("2h", 120), ("3 days", 4320), ("1 week", 10080)],
)
def test_durations_are_read(text: str, minutes: int) -> None:
    assert read_duration(text).roughly == timedelta(minutes=minutes)


@pytest.mark.parametrize("text", ["15", "-1 h", "1.5 h", "1 month", "", "99999 days"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no duration|is too long"):
        read_duration(text)


def test_a_time_of_handing_in_that_came_twice_is_taken_for_the_earlier() -> None:
    assert read_time("2026-10-25 02:30", BERLIN) == utc("2026-10-25T00:30:00")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "under 1 min"),
        (59, "under 1 min"),
        (60, "1 min"),
        (3660, "1 h 1 min"),
        (86400, "1 day"),
        (183900, "2 days 3 h"),
    ],
)
def test_lateness_reads_as_a_person_says_it(seconds: int, text: str) -> None:
    assert human(timedelta(seconds=seconds)) == text


zones = st.sampled_from(ZONES)
walls = st.datetimes(datetime(2000, 1, 1), datetime(2037, 1, 1)).map(
    lambda d: d.replace(microsecond=0)
)
moments = st.datetimes(datetime(2000, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC))


@given(zones, walls, st.timedeltas(timedelta(0), timedelta(days=2)))
@draws(200)
def test_a_later_time_on_the_wall_is_never_an_earlier_instant(
    zone: ZoneInfo, wall: datetime, more: timedelta
) -> None:
    assert instant(wall, zone) <= instant(wall + more, zone)


@given(zones, walls)
@draws(200)
def test_an_instant_shows_its_time_on_the_wall_if_the_wall_ever_does(
    zone: ZoneInfo, wall: datetime
) -> None:
    seen = instant(wall, zone).astimezone(zone).replace(tzinfo=None)
    assert seen == wall if exists(wall, zone) else seen > wall


@given(
    zones,
    moments,
    st.timedeltas(timedelta(0), timedelta(days=40)),
    st.timedeltas(timedelta(0), timedelta(days=9)),
)
@draws(200)
def test_started_days_never_fall_with_time_and_each_ends_when_the_wall_says(
    zone: ZoneInfo, end: datetime, late: timedelta, more: timedelta
) -> None:
    due = Due(end, zone)
    days = PER_DAY.lateness(due, end + late).days
    assert days >= 1
    assert (
        due.after(Duration(days - 1)).end <= end + late < due.after(Duration(days)).end or days == 1
    )
    assert PER_DAY.lateness(due, end + late + more).days >= days
    assert abs(days - (late // timedelta(days=1) + 1)) <= 1
