"""Machine code is kept from process to process, and no longer than the sources that it came of."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from patience import PATIENCE_S

from twophase.kernels.compiled import compiling

CALLED = """
from room.compiling import compiled

@compiled()
def value():
    return {value}
"""
CALLER = """
from room.called import value
from room.compiling import compiled

@compiled()
def twice():
    return 2 * value()

print(twice(), sum(twice.stats.cache_hits.values()))
"""


def run(folder: Path, value: int) -> list[int]:
    """What a process of its own gets from `twice`, and how often it took what was on the disk."""
    (folder / "room" / "called.py").write_text(CALLED.format(value=value), encoding="utf-8")
    env = os.environ | {"NUMBA_CACHE_DIR": str(folder / "kept"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "caller.py"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return [int(word) for word in done.stdout.split()]


def test_a_function_is_compiled_again_when_one_that_it_calls_in_another_file_changes(
    tmp_path: Path,
) -> None:
    (tmp_path / "room").mkdir()
    shutil.copy(compiling.__file__, tmp_path / "room" / "compiling.py")
    (tmp_path / "caller.py").write_text(CALLER, encoding="utf-8")
    assert run(tmp_path, 1) == [2, 0]
    assert run(tmp_path, 1) == [2, 1]  # the machine code of the first process
    assert run(tmp_path, 3) == [6, 0]
