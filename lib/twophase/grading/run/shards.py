"""A course graded in parts, each by another machine: what a part has, and the note about it."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twophase.grading.files.atomic import replace_text
from twophase.grading.files.digests import library_digest
from twophase.grading.intake.submissions import Submission
from twophase.grading.judge.judge import Course
from twophase.grading.results.records import confinement

SCHEMA = 1
NOTE = "shard.json"
MOST = 10_000


@dataclass(frozen=True)
class Shard:
    """Part `number` of `of`, counted from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True)
class ShardNote:
    """What `shard.json` says: which part, of which submissions (all names, of all parts), under
    which conditions, and whether every submission of this part has a result (`complete`)."""

    shard: Shard
    submissions: tuple[str, ...]
    conditions: dict[str, Any]
    complete: bool = False


def parse_shard(text: str) -> Shard:
    """`3/16` as a shard. Raises ValueError."""
    found = re.fullmatch(r"([0-9]{1,5})/([0-9]{1,5})", text.strip())
    shard = Shard(int(found[1]), int(found[2])) if found else Shard(0, 0)
    if not 1 <= shard.number <= shard.of <= MOST:
        raise ValueError(
            f"--shard {text!r} is no part; write the part's number and how many there are, such as"
            " 3/16"
        )
    return shard


def number_of(name: str, of: int) -> int:
    """The part that a submission belongs to. Its name alone decides, not what else is there."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest) % of + 1


def submissions_of(submissions: Sequence[Submission], shard: Shard) -> list[Submission]:
    """The submissions of this part."""
    return [s for s in submissions if number_of(s.name, shard.of) == shard.number]


def conditions(course: Course) -> dict[str, Any]:
    """What must be the same for all parts. Of the course's secret it has only a fingerprint."""
    fingerprint = hmac.new(course.secret, b"fingerprint of a shard", hashlib.sha256).hexdigest()
    return {
        "seed": None if course.secret else course.seed,
        "secret": fingerprint[:16] if course.secret else "",
        "case_sets": course.case_sets if course.secret else 0,
        "library": library_digest(),
        "official": confinement()[1],
        "limits": asdict(course.limits),
    }


def write_note(out: Path, note: ShardNote) -> None:
    """Write the note beside the results. Raises OSError."""
    tree = {
        "schema": SCHEMA,
        **asdict(note.shard),
        "complete": note.complete,
        "conditions": note.conditions,
        "submissions": note.submissions,
    }
    replace_text(out / NOTE, json.dumps(tree, indent=1) + "\n")


def read_note(folder: Path) -> ShardNote:
    """The note in a part's folder. Raises ValueError if there is none, or it is something else."""
    path = folder / NOTE
    try:
        raw = json.loads(path.read_bytes())
        if raw["schema"] != SCHEMA:
            raise ValueError(f"schema {raw['schema']}")
        shard, names = parse_shard(f"{raw['number']}/{raw['of']}"), raw["submissions"]
        if not isinstance(raw["conditions"], dict) or not all(isinstance(n, str) for n in names):
            raise TypeError("submissions must be names")
        return ShardNote(shard, tuple(names), raw["conditions"], raw["complete"] is True)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"{folder} is no part of a course: it has no {NOTE}; give what `twophase grade --shard`"
            " wrote"
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise ValueError(
            f"{path} is not what `twophase grade --shard` writes ({type(e).__name__}: {e})"
        ) from None
