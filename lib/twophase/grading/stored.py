"""Stored results, read and not touched: the last record of every file, each checked before anything is computed from it."""

from __future__ import annotations

import json
import math
from pathlib import Path

from twophase.grading.records import SCHEMA, Record, key

STATUSES = ("ok", "partial", "protocol", "unreadable", "internal")
QUESTION_STATUSES = ("right", "wrong", "not_yet", "missing", "failed")


def find(results: Path) -> Path:
    """The results file that a path means: itself, or `results.jsonl` in the folder. Raises ValueError."""
    path = results / "results.jsonl" if results.is_dir() else results
    if not path.is_file():
        raise ValueError(f"there is no file {path}; give the folder that `twophase grade` wrote, or its results.jsonl")
    return path


def read(path: Path) -> list[Record]:
    """The last record of every file, by name. A last line that was cut short is passed over. Raises ValueError."""
    data = path.read_bytes()
    last: dict[str, Record] = {}
    for n, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            record = json.loads(line)
            _require_sound(record)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise ValueError(f"line {n} of {path} is no result of this version ({type(e).__name__}: {e})") from None
        last[record["file"]] = record
    return [last[f] for f in sorted(last)]


def _require_sound(record: Record) -> None:
    if record["schema"] != SCHEMA:
        raise ValueError(f"schema {record['schema']}")
    key(record)
    if record["status"] not in STATUSES:
        raise ValueError(f"status {record['status']!r}")
    if not all(isinstance(record[k], str) for k in ("file", "topic", "message")):
        raise TypeError("file, topic and message must be text")
    for q in record["questions"]:
        if q["status"] not in QUESTION_STATUSES or not isinstance(q["id"], str):
            raise ValueError(f"question {q['id']!r}")
        points, out_of = float(q["points"]), float(q["out_of"])
        if not (math.isfinite(out_of) and 0 <= points <= out_of and out_of > 0):
            raise ValueError(f"{q['id']} has {points} of {out_of} points")
        for case in q["cases"]:
            if not isinstance(case["right"], bool) or not isinstance(case["public"], bool):
                raise TypeError(f"a case of {q['id']}")
