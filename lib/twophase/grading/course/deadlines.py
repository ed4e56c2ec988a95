"""Times as a course means them: local, in one IANA time zone, with days that follow the clock on
the wall.

A due time is kept as the first instant that is too late. `2026-10-02` lasts to the end of that day,
`2026-10-02 23:59` to the end of that minute. Of an hour that comes twice (clocks go back) the
second one counts; a time that does not exist (clocks go forward) is refused.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

DURATION = re.compile(r"([0-9]{1,9})\s*(min|minutes?|h|hours?|days?|weeks?)")
LOCAL_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}(?::\d{2})?))?")


def instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """The instant of a local time: the later one if it comes twice, the clock's jump if never."""
    first, second = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if exists(wall, zone):
        return max(first, second)

    def shown(after_s: int) -> datetime:
        at = second + timedelta(seconds=after_s)
        return at.astimezone(zone).replace(tzinfo=None)

    # the jump lies between them: before it the clock shows less than `wall`, after it more
    between_s = range((first - second) // timedelta(seconds=1))
    return second + timedelta(seconds=bisect_left(between_s, wall, key=shown))


def exists(wall: datetime, zone: ZoneInfo) -> bool:
    """Whether clocks in `zone` ever show this time."""
    return wall.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None) == wall


@dataclass(frozen=True)
class Duration:
    """Days by the wall clock, then a rest of real time."""

    days: int = 0
    rest: timedelta = timedelta(0)

    @property
    def roughly(self) -> timedelta:
        """With days of 24 hours."""
        return timedelta(days=self.days) + self.rest

    def __str__(self) -> str:
        return human(self.roughly)


@dataclass(frozen=True)
class Due:
    """A deadline: `end` is the first instant after it, in UTC; `written`: as in course.yml."""

    end: datetime
    zone: ZoneInfo
    written: str = field(default="", compare=False)

    def after(self, duration: Duration) -> Due:
        """The deadline this much later: in three days at the same time on the wall, whatever clocks
        do in between."""
        wall = self.end.astimezone(self.zone).replace(tzinfo=None) + timedelta(days=duration.days)
        end = instant(wall, self.zone) if duration.days else self.end
        return Due(end + duration.rest, self.zone)

    def __str__(self) -> str:
        last = self.end.astimezone(self.zone) - timedelta(seconds=1)
        return self.written or f"{last:%Y-%m-%d %H:%M}"


def read_duration(text: str) -> Duration:
    """`15 min`, `2 h`, `3 days`, `1 week`. Raises ValueError."""
    found = DURATION.fullmatch(text.strip())
    if not found:
        instead = "write a whole number and min, h, days or weeks, such as 15 min"
        raise ValueError(f"{text!r} is no duration; {instead}")
    n, unit = int(found[1]), found[2][0]
    if n > 10_000:
        raise ValueError(f"{text!r} is too long")
    return {
        "m": Duration(rest=timedelta(minutes=n)),
        "h": Duration(rest=timedelta(hours=n)),
        "d": Duration(n),
        "w": Duration(7 * n),
    }[unit]


def read_due(text: str, zone: ZoneInfo) -> Due:
    """A local date, or a date and a time, in `zone`. Raises ValueError."""
    found = LOCAL_TIME.fullmatch(text.strip())
    if not found:
        instead = "write 2026-10-02 23:59, or 2026-10-02 for the end of that day"
        raise ValueError(f"{text!r} is no local time; {instead} (the zone is time_zone's)")
    try:
        day = date.fromisoformat(found[1])
    except ValueError:
        raise ValueError(f"there is no day {found[1]} in the calendar") from None
    if not is_meant(day):
        raise ValueError(f"the year of {found[1]} cannot be meant")
    if found[2] is None:
        midnight = datetime.combine(day + timedelta(days=1), time())
        return Due(instant(midnight, zone), zone, text.strip())
    try:
        wall = datetime.combine(day, time.fromisoformat(found[2]))
    except ValueError:
        why = f"there is no time {found[2]}; write hours and minutes, such as 23:59"
        raise ValueError(why) from None
    if not exists(wall, zone):
        raise ValueError(
            f"{text} does not exist in {zone.key}: clocks go forward over it; write another time"
        )
    last = timedelta(minutes=1) if found[2].count(":") == 1 else timedelta(seconds=1)
    return Due(instant(wall, zone) + last, zone, text.strip())


def is_meant(day: date) -> bool:
    """Whether a course can mean this day; others, such as the year 1, also break arithmetic."""
    return 1990 <= day.year <= 2200


def read_time(text: str, zone: ZoneInfo) -> datetime:
    """A time of handing in: ISO 8601, with an offset or in `zone` (the earlier one, if it came
    twice). Raises ValueError."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        instead = "write 2026-10-02 21:04:10, or with an offset, 2026-10-02T21:04:10+02:00"
        raise ValueError(f"{text!r} is no time; {instead}") from None
    if not is_meant(found):
        raise ValueError(f"the year of {text} cannot be meant")
    return (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(UTC)


def human(delta: timedelta) -> str:
    """`2 days 3 h`, `14 min`, `under 1 min`: the two largest units, rounded down."""
    hours, minutes = divmod(int(delta.total_seconds()) // 60, 60)
    days, hours = divmod(hours, 24)
    parts = (days, "day" if days == 1 else "days"), (hours, "h"), (minutes, "min")
    return " ".join([f"{n} {unit}" for n, unit in parts if n][:2]) or "under 1 min"
