"""Results: one JSON object per line and submission, appended and never rewritten. The README of this room lists the fields."""

from __future__ import annotations

import fcntl
import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any

from twophase.checks.exercise import Exercise
from twophase.grading.confine import confined_by
from twophase.grading.release import library_digest
from twophase.grading.supervisor import Grade, Graded

SCHEMA = 1
Record = dict[str, Any]


def environment() -> dict[str, str]:
    """What a rerun would have to have in common with this run."""
    out = {"python": platform.python_version(), "system": platform.system(), "machine": platform.machine()}
    for package in ("twophase", "torch", "numpy", "ipython"):
        try:
            out[package] = version(package)
        except PackageNotFoundError:
            out[package] = "unknown"
    return out


def blank(file: str, digest: str, seed: int) -> Record:
    """What every record has, whatever became of the submission."""
    return {
        "schema": SCHEMA,
        "file": file,
        "status": "internal",
        "topic": "",
        "points": None,
        "out_of": None,
        "message": "",
        "questions": [],
        "flags": [],
        "digests": {"submission": digest, "release": "", "library": library_digest()},
        "seed": seed,
        "confined_by": list(confined_by()),
        "environment": environment(),
        "varies": {},
    }


def filled(record: Record, grade: Grade, exercises: Mapping[str, Exercise]) -> Record:
    """The record of a submission that was judged: `ok`, `protocol` if it spoke nonsense, else `partial` if something broke."""
    status = "protocol" if "protocol" in grade.trouble else "partial" if grade.trouble else "ok"
    questions = [_question(q, exercises[q.verdict.exercise_id]) for q in grade.questions]
    return record | {
        "status": status,
        "points": sum(q["points"] for q in questions),
        "out_of": sum(q["out_of"] for q in questions),
        "questions": questions,
        "flags": [asdict(f) for f in grade.flags],
        "varies": {"processes": grade.forks},
    }


def _question(graded: Graded, exercise: Exercise) -> Record:
    v = graded.verdict
    return {
        "id": v.exercise_id,
        "title": exercise.title,
        "status": v.status,
        "points": v.points,
        "out_of": v.out_of,
        "message": v.message,
        "misconception": v.misconception,
        "hint": "" if v.right else exercise.hints[0],
        "alone": graded.alone,
        "cases": [asdict(o) for o in v.outcomes],
        "cell": {"error": graded.cell.error, "output": graded.cell.output},
    }


def key(record: Record) -> tuple[str, ...]:
    """Two records with the same key are of the same work under the same conditions: nothing is gained by a second."""
    digests = record["digests"]
    return (
        record["file"],
        digests["submission"],
        digests["release"],
        digests["library"],
        str(record["seed"]),
        json.dumps([record["confined_by"], record["environment"]], sort_keys=True),
    )


class Results:
    """`results.jsonl` in a folder: the records that are there, and a place for new ones. One process at a time."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # held, and locked, as long as the run lasts
        self.path = folder / "results.jsonl"
        self._file = open(self.path, "a+b")  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise ValueError(f"another run is writing to {self.path}; wait for it, or give another --out") from None
        self.records = list(self._read())

    def __enter__(self) -> Results:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._file.close()

    def _read(self) -> Iterator[Record]:
        """The records; a last line that a crash cut short is removed. Raises ValueError if the file is something else."""
        self._file.seek(0)
        data = self._file.read()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            self._file.truncate(whole)
        for n, line in enumerate(data[:whole].splitlines(), 1):
            try:
                record = json.loads(line)
                if record["schema"] != SCHEMA:
                    raise ValueError(f"schema {record['schema']}")
                key(record)
            except (ValueError, KeyError, TypeError, RecursionError) as e:
                said = f"line {n} of {self.path} is no result of this version ({e}); move the file away, or give another --out"
                raise ValueError(said) from None
            yield record

    def append(self, record: Record) -> None:
        """Add a record and make sure that it is on the disk."""
        line = json.dumps(record, ensure_ascii=True, allow_nan=False).encode() + b"\n"
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())
        self.records.append(record)

    def latest(self) -> list[Record]:
        """The last record of every file, by the file's name."""
        last = {r["file"]: r for r in self.records}
        return [last[f] for f in sorted(last)]
