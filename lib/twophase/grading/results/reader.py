"""Stored results: lines of JSON, each checked before use, one in memory at a time."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from twophase.grading.results.records import OUTSIDE_KEY, SCHEMA, Record

STATUSES = ("ok", "partial", "protocol", "unreadable", "internal")
NOT_JUDGED = ("unreadable", "internal")
QUESTION_STATUSES = ("right", "wrong", "not_yet", "missing", "failed")


def results_path(results: Path) -> Path:
    """The results file that a path means: itself, or the one in the folder. Raises ValueError."""
    path = results / "results.jsonl" if results.is_dir() else results
    if not path.is_file():
        instead = "give the folder that `twophase grade` wrote, or its results.jsonl"
        raise ValueError(f"there is no file {path}; {instead}")
    return path


def latest_records(path: Path) -> list[Record]:
    """The last record of every file, by name. Raises ValueError."""
    return list(Index(path).latest())


class Index:
    """A results file without its records: their keys, and where each file's last line begins."""

    def __init__(self, path: Path) -> None:
        """Reads the file. Raises ValueError if a line of it is no result."""
        self.path = path
        self.topics: set[str] = set()
        self.last: dict[str, int] = {}  # file -> where its last line begins
        self.end = 0  # of the last whole line
        self.secret = False  # whether a result's seed came from a secret
        # file -> the key of its last line, unless that is the grader's own fault
        self._done: dict[str, bytes] = {}
        with path.open("rb") as file:
            for end, record in scan(file, path):
                self.note(record, end)

    def note(self, record: Record, end: int) -> None:
        """A record whose line begins at the present end."""
        self.last[record["file"]], self.end = self.end, end
        self.topics.add(record["topic"])
        self.secret |= isinstance(record["seed"], str)
        self._done.pop(record["file"], None)
        if record["status"] != OUTSIDE_KEY:
            self._done[record["file"]] = bytes.fromhex(record["key"])

    def has(self, file: str, key: str) -> bool:
        """Whether the file's last result has this key, and is not the grader's own fault."""
        return self._done.get(file) == bytes.fromhex(key)

    def lines(self, files: Iterable[str]) -> Iterator[bytes]:
        """The last line of each of these files, read from the disk one by one."""
        with self.path.open("rb") as file:
            for name in files:
                file.seek(self.last[name])
                yield file.readline()

    def latest(self) -> Iterator[Record]:
        """The last record of every file, by the file's name, one in memory at a time."""
        return map(json.loads, self.lines(sorted(self.last)))


def scan(file: BinaryIO, path: Path) -> Iterator[tuple[int, Record]]:
    """Every whole line of a file: where the next begins, and its record. Raises ValueError."""
    end = 0
    for n, line in enumerate(file, 1):
        if not line.endswith(b"\n"):  # a crash cut it short
            return
        end += len(line)
        yield end, _parsed(line, f"line {n} of {path}")


def _parsed(line: bytes, where: str) -> Record:
    try:
        record = json.loads(line)
        schema = record["schema"]
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        why = f"is no result of `twophase grade` ({type(e).__name__})"
        raise ValueError(f"{where} {why}; {REMOVE}") from None
    if schema != SCHEMA:
        why = f"is of another version of twophase (schema {schema}; this one has {SCHEMA})"
        raise ValueError(f"{where} {why}; {MOVE}")
    try:
        require_sound(record)
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        why = f"is no result of this version ({type(e).__name__}: {e})"
        raise ValueError(f"{where} {why}; {REMOVE}") from None
    return record  # type: ignore[no-any-return]


REMOVE = "remove that line, and what it was about is graded again"
MOVE = "move the file away or give another folder, and grade again"


def require_sound(record: Record) -> None:
    """Raises ValueError, KeyError, TypeError or AttributeError for what we would not write."""
    if record["schema"] != SCHEMA:
        raise ValueError(f"schema {record['schema']}")
    if not re.fullmatch("[0-9a-f]{64}", record["key"]):
        raise ValueError(f"key {record['key']!r}")
    if not all(isinstance(record["digests"][k], str) for k in ("submission", "release", "library")):
        raise TypeError("digests must be text")
    if not isinstance(record["official"], bool) or not isinstance(record["seed"], int | str):
        raise TypeError("official must be true or false, seed a number or text")
    if record["status"] not in STATUSES:
        raise ValueError(f"status {record['status']!r}")
    texts = [record[k] for k in ("file", "topic", "message")]
    texts += [record.get(k, "") for k in ("student", "submitted")]
    if not all(isinstance(said, str) for said in texts):
        raise TypeError("file, student, submitted, topic and message must be text")
    for q in record["questions"]:
        _require_sound_question(q)
    _require_sum(record)


def _require_sum(record: Record) -> None:
    """Points are those of the questions; work that was not judged has neither."""
    judged = record["status"] not in NOT_JUDGED
    for name in ("points", "out_of"):
        is_right = sum(q[name] for q in record["questions"]) if judged else None
        if record[name] != is_right:
            raise ValueError(f"{name} {record[name]!r}, and its questions have {is_right!r}")


def _require_sound_question(q: Record) -> None:
    if q["status"] not in QUESTION_STATUSES or not isinstance(q["id"], str):
        raise ValueError(f"question {q['id']!r}")
    points, out_of = float(q["points"]), float(q["out_of"])
    earned = out_of if q["status"] == "right" else 0
    if not (math.isfinite(out_of) and out_of > 0 and points == earned):
        raise ValueError(f"{q['id']} is {q['status']} and has {points:g} of {out_of:g} points")
    for case in q["cases"]:
        if not isinstance(case["right"], bool) or not isinstance(case["public"], bool):
            raise TypeError(f"a case of {q['id']}")
