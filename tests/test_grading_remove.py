"""A folder that somebody else has filled is removed, whatever is in it, and nothing outside of
it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile.worker import LIMITS, output, zygote

from twophase.grading.files.removal import remove


def _deep(top: Path, n: int = 1500) -> None:
    """Folders within folders, beyond the longest path and the deepest recursion."""
    here = os.open(top, os.O_RDONLY)
    for i in range(n):
        os.mkdir("d", dir_fd=here)
        os.close(os.open(f"f{i}", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def _closed(top: Path) -> None:
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "file").write_text("x")
    (top / "a" / "b").chmod(0)
    (top / "a").chmod(0)
    top.chmod(0)


def _wide(top: Path) -> None:
    for i in range(30):
        for j in range(10):
            (top / f"a{i}" / f"b{j}" / "c").mkdir(parents=True)
            (top / f"a{i}" / f"b{j}" / "c" / "file").touch()


def _odd(top: Path) -> None:
    os.mkfifo(top / "pipe")
    (top / ("n" * 255)).touch()
    os.mkdir(os.fsencode(top) + b"/\xff\n")
    (top / "loop").symlink_to(top)


@pytest.mark.parametrize("fill", [_deep, _closed, _wide, _odd])
def test_nothing_is_left_of_it(tmp_path: Path, fill: Callable[[Path], None]) -> None:
    top = tmp_path / "top"
    top.mkdir()
    fill(top)
    remove(top)
    assert not os.path.lexists(top)


def test_links_are_not_followed(tmp_path: Path) -> None:
    kept, top = tmp_path / "kept", tmp_path / "top"
    for folder in (kept, top, top / "inner"):
        folder.mkdir()
    (kept / "file").write_text("mine")
    (top / "link").symlink_to(kept)
    (top / "inner" / "link").symlink_to(kept / "file")
    remove(top)
    assert (kept / "file").read_text() == "mine"
    (tmp_path / "link").symlink_to(kept)
    remove(tmp_path / "link")
    assert (kept / "file").read_text() == "mine"


def test_what_is_not_there_is_removed_already(tmp_path: Path) -> None:
    remove(tmp_path / "none")


def test_a_submission_that_would_dig_deep_folders_may_make_none_and_stops_nobody() -> None:
    dig = "import os\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')"
    for _ in range(2):
        with zygote().fork(LIMITS) as session:
            assert "OSError" in session.run_cell(dig, 20.0).types
            assert output(session, "print(os.listdir('.'))") == "[]"


def test_a_folder_that_somebody_else_removes_at_the_same_time_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    for name in ("a", "b"):
        (folder / name / "inner").mkdir(parents=True)
        (folder / name / "file").write_text("x")
    unlink = os.unlink

    def too_late(path: str) -> None:
        unlink(path)
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "unlink", too_late)
    remove(folder)
    assert not folder.exists()
