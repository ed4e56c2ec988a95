"""What an autograder finds in Gradescope's container: config.json, its memory, who handed in."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

SCHEMA = 1
PRIVATE = "private"  # in the zip: what no submission may read
# the judge and the libraries, at their peak: 535 to 600 MiB when the topics were measured, one by
# one; a test holds one of them below the container's
GRADER_BYTES = 620 * 2**20
LEAST_BYTES, MOST_BYTES = 100 * 2**20, 2 * 10**9  # for one submission, beyond the libraries'
CONTAINER_BYTES = 768 * 2**20  # Gradescope's default
LIMIT_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Config:
    """How to grade. `memory_bytes` 0: what the container leaves. `topic` "": the notebook's."""

    topic: str = ""
    seed: int = 1
    sets: int = 16
    cell_s: float = 30.0
    submission_s: float = 300.0
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


@dataclass(frozen=True)
class HandedIn:
    """Who handed in and when, as Gradescope says: empty where it does not."""

    student: str = ""
    submitted: str = ""


def handed_in(path: Path) -> HandedIn:
    """What submission_metadata.json says. A group counts as its first member in the alphabet."""
    try:
        tree: Any = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return HandedIn()
    if not isinstance(tree, dict):
        return HandedIn()
    users = tree.get("users")
    names = [_name(u) for u in users if isinstance(u, dict)] if isinstance(users, list) else []
    when = tree.get("created_at")
    return HandedIn(min((n for n in names if n), default=""), when if isinstance(when, str) else "")


def _name(user: dict[str, Any]) -> str:
    """The email in lower case, else the id."""
    email, number = user.get("email"), user.get("id")
    if isinstance(email, str) and email.strip():
        return email.strip().lower()
    return str(number) if isinstance(number, int | str) and str(number).strip() else ""
