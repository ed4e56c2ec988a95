"""What an autograder finds in Gradescope's container: config.json, its memory, who handed in."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from twophase.grading.files.notebook import value_at
from twophase.grading.sandbox.limits import Limits

SCHEMA = 1
PRIVATE = "private"  # in the zip: what no submission may read
# the judge and the libraries, at their peak: 535 to 600 MiB when the topics were measured, one by
# one; a test holds one of them below the container's
GRADER_BYTES = 620 * 2**20
USUAL = Limits()
# for one submission, beyond the libraries'
LEAST_BYTES, MOST_BYTES = 100 * 2**20, USUAL.memory_bytes
CONTAINER_BYTES = 768 * 2**20  # Gradescope's default
LIMIT_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Config:
    """How to grade. `memory_bytes` 0: what the container leaves. `topic` "": the notebook's."""

    topic: str = ""
    seed: int = 1
    sets: int = 16
    cell_s: float = USUAL.cell_s
    submission_s: float = USUAL.submission_s
    memory_bytes: int = 0
    unsafe: bool = False
    checks: tuple[str, ...] = ()  # this and the next two: folders below `private/`
    variants: str = ""
    release: str = ""

    def to_bytes(self) -> bytes:
        """The same bytes for the same settings."""
        text = json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1, sort_keys=True)
        return f"{text}\n".encode("ascii")


def read_config(path: Path) -> Config:
    """The settings in this file. Raises ValueError if the file is not of this version."""
    try:
        tree = json.loads(path.read_bytes())
        if tree.pop("schema") != SCHEMA or set(tree) != {f.name for f in fields(Config)}:
            raise ValueError("another version")
        return Config(**tree | {"checks": tuple(tree["checks"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise ValueError(
            f"{path} cannot be used ({type(e).__name__}: {e}); build the autograder's zip again"
        ) from None


def memory_bytes(config: Config, files: tuple[str, ...] = LIMIT_FILES) -> int:
    """Bytes for one submission: as configured, else what the container leaves beside the grader."""
    if config.memory_bytes:
        return config.memory_bytes
    return max(LEAST_BYTES, min(MOST_BYTES, container_bytes(files) - GRADER_BYTES))


def container_bytes(files: tuple[str, ...] = LIMIT_FILES) -> int:
    """The memory that this container may use; Gradescope's default where it does not say."""
    for name in files:
        try:
            said = int(Path(name).read_text(encoding="ascii"))
        except (OSError, ValueError):  # not there, or "max"
            continue
        if said < 2**50:  # version 1 writes a huge number for "no limit"
            return said
    return CONTAINER_BYTES


def handed_in(path: Path) -> tuple[str, str]:
    """Who handed in and when, as submission_metadata.json says; empty where it does not. A group
    counts as its first member in the alphabet."""
    try:
        tree: Any = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return "", ""
    names = map(_name, value_at(tree, "users", list))
    return min(filter(None, names), default=""), value_at(tree, "created_at", str)


def _name(user: Any) -> str:
    """The email in lower case, else the id."""
    number = value_at(user, "id", int) or value_at(user, "id", str).strip()
    return value_at(user, "email", str).strip().lower() or str(number)
