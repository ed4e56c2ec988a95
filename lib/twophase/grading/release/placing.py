"""Putting a release in its place: written and tried beside it, and moved whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from twophase.checks import manifest
from twophase.grading.errors import writing
from twophase.grading.release.handout import Handout

ROOMS = ("lib", "exercises", "solutions", "book", "tests", "tools", "bench", "my", ".venv", ".git")


def require_place(out: Path, root: Path, folders: tuple[Path, ...]) -> None:
    """Raises ValueError if `out` is in the way of the course at `root` or of one of the folders."""
    place, course = Path(os.path.abspath(out)).resolve(), root.resolve()
    if course.is_relative_to(place):
        raise ValueError(
            f"{out} is the course itself or holds it; give a new folder to --out, such as release/"
        )
    for inside in [*(course / r for r in ROOMS), *folders]:
        if place.is_relative_to(inside.resolve()) or inside.resolve().is_relative_to(place):
            raise ValueError(
                f"{out} is in {inside}, or the other way round; give another folder to --out"
            )


def require_free(out: Path, handout: Handout, replace: bool) -> bool:
    """Whether `out` has this very release. Raises ValueError if something there would be lost."""
    if not os.path.lexists(out):
        return False
    if out.is_symlink() or not out.is_dir():
        raise ValueError(f"{out} is a file or a link; give a new folder to --out")
    if not any(out.iterdir()):
        return False
    if not (out / manifest.FILE_NAME).is_file():
        raise ValueError(f"{out} has other files and is no release; give a new folder to --out")
    if os.path.lexists(out / "my"):
        raise ValueError(
            f"{out} has a folder my/: somebody works there; give a new folder to --out"
        )
    differing = handout.differs(out)
    if differing and not replace:
        more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
        raise ValueError(
            f"{out} has another release (different: {', '.join(differing[:3])}{more}); add"
            " --replace, or give a new folder to --out"
        )
    return not differing


@contextmanager
def written(out: Path, handout: Handout) -> Iterator[Path]:
    """The release, written beside `out`; removed again unless `move` has taken it. Raises
    CannotWrite."""
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-"))
    try:
        with writing(out):
            for name, data in handout.files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                path.chmod(0o644)
            for path in [folder, *(p for p in folder.rglob("*") if p.is_dir())]:
                path.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def move(folder: Path, out: Path) -> None:
    """Put what is at `folder` in the place of `out`. An earlier release is out of the way first,
    and is put back if this fails."""
    earlier = Path(f"{folder}-earlier")
    with suppress(OSError):
        out.rmdir()  # an empty folder is in nobody's way
    if out.is_dir():
        os.rename(out, earlier)
    try:
        os.rename(folder, out)
    except OSError:
        if earlier.is_dir():
            os.rename(earlier, out)
        raise
    shutil.rmtree(earlier, ignore_errors=True)
