"""The learner's folder `my/`: filled from exercises/, brought up to date, never overwritten."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from twophase.lab.record import FILE_NAME, STATE_FOLDER


@dataclass(frozen=True)
class Report:
    """What became of one notebook."""

    name: str
    lines: list[str] = field(default_factory=list)
    failed: bool = False


def folder(course: Path) -> Path:
    """The learner's folder."""
    return course / "my"


def progress_file(course: Path) -> Path:
    """The learner's record; it may not exist yet."""
    return folder(course) / STATE_FOLDER / FILE_NAME


def shown(path: Path) -> str:
    """A path as a person would type it from here."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def released(course: Path) -> list[Path]:
    """The notebooks of this release. Raises ValueError if there are none."""
    found = sorted((course / "exercises").glob("[0-9][0-9]_*.ipynb"))
    if not found:
        raise ValueError(
            f"there are no notebooks in {course / 'exercises'}: run this from a clone of the course"
        )
    return found


def fill(course: Path) -> list[str]:
    """Copy what is missing and begin the record; returns the names of what was copied."""
    notebooks = released(course)
    record = progress_file(course)
    record.parent.mkdir(parents=True, exist_ok=True)
    record.touch()
    return [n.name for n in notebooks if _create(folder(course) / n.name, n.read_bytes())]


def _written_beside(path: Path, data: bytes) -> str:
    """A complete file next to `path`, to be moved into its place."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    with os.fdopen(handle, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.chmod(name, 0o644)
    return name


def _create(path: Path, data: bytes) -> bool:
    """Write a file that is not there yet, whole or not at all. Returns whether it was missing."""
    if os.path.lexists(path):
        return False
    part = _written_beside(path, data)
    try:
        os.link(
            part, path
        )  # fails if somebody made it meanwhile: an existing file is never replaced
    except FileExistsError:
        return False
    finally:
        os.unlink(part)
    return True


def update(course: Path) -> Iterator[Report]:
    """Bring the release into my/, notebook by notebook; a notebook that cannot be read is left as
    it is."""
    copied = fill(course)
    for notebook in released(course):
        if notebook.name in copied:
            yield Report(notebook.name, ["new, copied"])
            continue
        try:
            yield Report(
                notebook.name, _update_one(folder(course) / notebook.name, notebook.read_bytes())
            )
        except (ValueError, OSError) as e:
            yield Report(notebook.name, [f"left as it is: {e}"], failed=True)


def _update_one(path: Path, release: bytes) -> list[str]:
    from twophase.cli import merge  # brings nbformat

    before = path.read_bytes()
    merged = merge.merge(merge.read(before), merge.read(release))
    if not merged.changed:
        return ["up to date"]
    digest = hashlib.sha256(before).hexdigest()[:12]
    backup = path.parent / STATE_FOLDER / "backup" / f"{path.stem}-{digest}.ipynb"
    backup.parent.mkdir(parents=True, exist_ok=True)
    _create(backup, before)
    part = _written_beside(path, merge.to_bytes(merged.notebook))
    try:
        if path.read_bytes() != before:
            raise ValueError(
                "it was saved while this ran; close it in JupyterLab and run `twophase update`"
                " again"
            )
        os.replace(part, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part)
    return ["updated", *merged.lines, f"the notebook as it was: {shown(backup)}"]
