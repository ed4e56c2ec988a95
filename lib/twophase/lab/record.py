"""What a learner has tried and solved, as lines of JSON in `my/.twophase/progress.jsonl`.

The file is made by `twophase lab`. Where it does not exist (exercises/, solutions/, a copy
elsewhere) nothing is written, and the record lives as long as the process. A line is written at
once, at the end of the file, so that two notebooks may write together; a line cut short by a crash
is skipped when reading.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

STATE_FOLDER = ".twophase"
FILE_NAME = "progress.jsonl"
SCHEMA = 1

State = Literal["done", "tried", "open"]
Event = dict[str, Any]

_here: list[Event] = []  # what happened in this process and could not be written


def find_file(start: Path | None = None) -> Path | None:
    """The progress file of the folder we are in, or of one above it; None outside a learner's
    folder."""
    try:
        folder = (start or Path.cwd()).resolve()
    except OSError:  # the folder was deleted under us
        return None
    for place in (folder, *folder.parents):
        file = place / STATE_FOLDER / FILE_NAME
        if file.is_file():
            return file
    return None


def write(event: str, exercise_id: str, file: Path | None = None, **facts: Any) -> None:
    """Add one event to the record. A record that cannot be written never disturbs the learner's
    work."""
    entry: Event = {
        "schema": SCHEMA,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "event": event,
        "id": exercise_id,
        **facts,
    }
    target = file or find_file()
    if target is not None:
        with contextlib.suppress(OSError):
            _append(target, (json.dumps(entry, ensure_ascii=False) + "\n").encode("utf-8"))
            return
    _here.append(entry)


def _append(file: Path, line: bytes) -> None:
    handle = os.open(file, os.O_RDWR | os.O_APPEND)
    try:
        end = os.fstat(handle).st_size
        torn = end > 0 and os.pread(handle, 1, end - 1) != b"\n"
        os.write(
            handle, b"\n" + line if torn else line
        )  # one write: two notebooks never mix their lines
    finally:
        os.close(handle)


def read(file: Path | None = None) -> list[Event]:
    """Every event of the record, oldest first, then those of this process that have no file."""
    source = file or find_file()
    events: list[Event] = []
    if source is not None:
        with contextlib.suppress(OSError):
            for line in source.read_bytes().splitlines():
                with contextlib.suppress(ValueError):
                    entry = json.loads(line)
                    if isinstance(entry, dict) and isinstance(entry.get("id"), str):
                        events.append(entry)
    return events + _here


@dataclass(frozen=True)
class Standing:
    """Where a learner stands with one exercise."""

    state: State = "open"
    points: float = 0.0
    peeked: bool = False


def standings(events: list[Event]) -> dict[str, Standing]:
    """The standing of every exercise that was touched. Once done, an exercise stays done."""
    found: dict[str, Standing] = {}
    for e in events:
        old = found.get(e["id"], Standing())
        if e.get("event") == "check" and e.get("status") == "right":
            points = e.get("points", 0.0)
            found[e["id"]] = Standing(
                "done", float(points) if isinstance(points, int | float) else 0.0, old.peeked
            )
        elif e.get("event") == "check" and old.state == "open":
            found[e["id"]] = Standing("tried", 0.0, old.peeked)
        elif e.get("event") == "solution":
            found[e["id"]] = Standing(old.state, old.points, True)
    return found
