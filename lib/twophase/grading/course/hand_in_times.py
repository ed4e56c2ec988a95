"""When each file was handed in, where neither its layout nor its record says so."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from twophase.grading.course.csv_reading import read_csv, require_columns
from twophase.grading.course.deadlines import read_time
from twophase.grading.course.values import text


def read_times(path: Path, zone: ZoneInfo) -> dict[str, datetime]:
    """When each file was handed in: columns file (or the submission's digest) and submitted."""
    header, rows = read_csv(path)
    by = "submission" if "submission" in header else "file"
    require_columns(path, header, (by, "submitted"), ())
    found: dict[str, datetime] = {}
    for row in rows:
        name = row.need(by, text)
        if name in found:
            raise ValueError(f"{row.where}: {name} is there twice")
        found[name] = row.need("submitted", lambda v: read_time(v, zone))
    return found
