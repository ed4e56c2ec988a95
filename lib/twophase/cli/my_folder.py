"""The learner's folder `my/`: filled from exercises/, brought up to date, never overwritten."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from twophase.grading.files.atomic import replacing
from twophase.lab.record import FILE_NAME, STATE_FOLDER

CHAPTERS = "chapters"


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
    copied = [n.name for n in notebooks if _create(folder(course) / n.name, n.read_bytes())]
    made = [p.name for p in pages(course) if _create(*_chapter(course, p))]
    return copied + [f"{CHAPTERS}/{Path(name).stem}.ipynb" for name in made]


def pages(course: Path) -> list[Path]:
    """The chapters of the book that are here; none in what an instructor handed out."""
    return sorted((course / "book").glob("[0-9][0-9]_*.md"))


def _chapter(course: Path, page: Path) -> tuple[Path, bytes]:
    """Where a chapter's notebook lies in the learner's folder, and what is in it when it is new."""
    from twophase.lab import chapters  # brings jupytext

    target = folder(course) / CHAPTERS / f"{page.stem}.ipynb"
    target.parent.mkdir(exist_ok=True)
    return target, chapters.to_notebook(page.read_text(encoding="utf-8"), page.stem)


def _create(path: Path, data: bytes) -> bool:
    """Write a file that is not there yet, whole or not at all. Returns whether it was missing."""
    if os.path.lexists(path):
        return False
    try:
        with replacing(path, 0o644, new=True) as file:
            file.write(data)
    except FileExistsError:  # somebody made it meanwhile
        return False
    return True


def update(course: Path) -> Iterator[Report]:
    """Bring the release into my/, notebook by notebook; a notebook that cannot be read is left as
    it is."""
    copied = fill(course)
    for notebook in released(course):
        if notebook.name in copied:
            yield Report(notebook.name, ["new, copied"])
            continue
        target = folder(course) / notebook.name
        yield _reported(notebook.name, partial(_merge, target, notebook.read_bytes()))
    for page in pages(course):
        target, made = _chapter(course, page)
        yield _reported(f"{CHAPTERS}/{target.name}", partial(_renew, target, made))


def _reported(name: str, bring: Callable[[], list[str]]) -> Report:
    try:
        return Report(name, bring())
    except (ValueError, OSError) as e:
        return Report(name, [f"left as it is: {e}"], failed=True)


def _renew(path: Path, made: bytes) -> list[str]:
    """A new release of a chapter takes the old one's place, which is kept."""
    from twophase.cli import notebook_update  # brings nbformat

    before = path.read_bytes()
    pages = [
        notebook_update.read(data).metadata.get("twophase", {}).get("page")
        for data in (before, made)
    ]
    if pages[0] == pages[1]:
        return ["up to date"]
    return ["updated", *_replace(path, before, made, backup=path.parents[1])]


def _merge(path: Path, release: bytes) -> list[str]:
    from twophase.cli import notebook_update  # brings nbformat

    before = path.read_bytes()
    merged = notebook_update.merge(notebook_update.read(before), notebook_update.read(release))
    if not merged.changed:
        return ["up to date"]
    made = notebook_update.to_bytes(merged.notebook)
    return ["updated", *merged.lines, *_replace(path, before, made, backup=path.parent)]


def _replace(path: Path, before: bytes, made: bytes, backup: Path) -> list[str]:
    """Put `made` in the place of what was read as `before`, which stays in the learner's folder
    `backup`. Raises ValueError if it was saved meanwhile."""
    digest = hashlib.sha256(before).hexdigest()[:12]
    kept = backup / STATE_FOLDER / "backup" / f"{path.stem}-{digest}.ipynb"
    _create(kept, before)
    with replacing(path, 0o644) as file:
        file.write(made)
        if path.read_bytes() != before:
            raise ValueError(
                "it was saved while this ran; close it in JupyterLab and run `twophase update`"
                " again"
            )
    return [f"the notebook as it was: {shown(kept)}"]
