"""Machine code is kept from process to process, and no longer than the sources that it came of."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

from twophase.kernels.compiled import compiling

CALLED = """
from room.compiling import compiled

@compiled()
def value():
    return {value}
"""
CALLER = """
import sys
from room.called import value
from room.compiling import compiled

@compiled()
def twice():
    return 2 * value()

exec(sys.argv[1])
print(twice(), sum(twice.stats.cache_hits.values()))
"""
LOSE_WHAT_IS_KEPT = """
import os, pathlib
for folder in list(pathlib.Path(os.environ["NUMBA_CACHE_DIR"]).iterdir()):
    folder.rename(folder.with_name("was " + folder.name))
    folder.write_text("no folder any more")
"""


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A folder of its own with `compiling` in it, and a script beside it."""
    (tmp_path / "room").mkdir()
    shutil.copy(compiling.__file__, tmp_path / "room" / "compiling.py")
    (tmp_path / "caller.py").write_text(CALLER, encoding="utf-8")
    return tmp_path


def run(folder: Path, value: int, before: str = "", **settings: str) -> list[int]:
    """What a process of its own gets from `twice`, and how often it took what was on the disk;
    `before` is executed between the import and the call, `settings` are set for it."""
    (folder / "room" / "called.py").write_text(CALLED.format(value=value), encoding="utf-8")
    env = os.environ | {"NUMBA_CACHE_DIR": str(folder / "kept"), "PYTHONDONTWRITEBYTECODE": "1"}
    env |= settings
    done = subprocess.run(
        [sys.executable, "caller.py", before],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return [int(word) for word in done.stdout.split()]


def test_a_function_is_compiled_again_when_one_that_it_calls_in_another_file_changes(
    room: Path,
) -> None:
    assert run(room, 1) == [2, 0]
    assert run(room, 1) == [2, 1]  # the machine code of the first process
    assert run(room, 3) == [6, 0]
    assert run(room, 1) == [2, 1]  # no process of other sources has replaced it


def test_an_editors_hidden_file_is_no_source(room: Path) -> None:
    assert run(room, 1) == [2, 0]
    (room / "room" / ".#called.py").symlink_to("somebody@somewhere")
    assert run(room, 1) == [2, 1]


def test_what_cannot_be_read_any_more_is_compiled(room: Path) -> None:
    assert run(room, 1) == [2, 0]
    assert run(room, 1, before=LOSE_WHAT_IS_KEPT) == [2, 0]


@pytest.mark.parametrize("setting", [{"NUMBA_BOUNDSCHECK": "1"}, {"NUMBA_OPT": "1"}], ids=str)
def test_code_that_was_compiled_under_other_settings_is_not_taken(
    room: Path, setting: dict[str, str]
) -> None:
    assert run(room, 1, **setting) == [2, 0]
    assert run(room, 1) == [2, 0]
    assert run(room, 1) == run(room, 1, **setting) == [2, 1]
