"""What decides a verdict, as one number: the checks of a topic, and the package as it is."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from functools import cache
from pathlib import Path

import twophase
from twophase.checks import registry
from twophase.checks.extra import Extra


def checks_digest(topic: str, folders: Collection[Extra] = ()) -> str:
    """One SHA-256 over what decides a verdict: the topic's checks, the folders', the judge."""
    checks = Path(registry.__file__).parent
    files = sorted(checks.glob("*.py")) + sorted((checks / topic).rglob("*.py"))
    total = hashlib.sha256(_digest(files, checks).encode())
    for folder in folders:
        if topic in folder.topics:
            total.update(folder.digest.encode())
    return total.hexdigest()


@cache
def library_digest() -> str:
    """One SHA-256 over the package's Python files: what a submission may import, and the grader."""
    root = Path(twophase.__path__[0])
    return _digest(sorted(root.rglob("*.py")), root)


def _digest(files: list[Path], root: Path) -> str:
    total = hashlib.sha256()
    for path in files:
        total.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()
