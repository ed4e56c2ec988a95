"""What the tests of the autograder share: its zip, a tree laid out as Gradescope's, notebooks with
answers exchanged."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from twophase.grading.gradescope import bundle, rehearsal
from twophase.grading.gradescope.config import Config
from twophase.grading.release.release import Source

ROOT = Path(__file__).resolve().parents[1]
SECRET = "5ecre7-5ecre7-5ecre7-5ecre7"
KV = ROOT / "solutions" / "03_kv_cache.ipynb"
KV_POINTS = 41.0


def zip_bytes(
    folder: Path,
    config: Config = Config(topic="kv_cache"),  # noqa: B008 frozen
    secret: bool = True,
) -> bytes:
    """An autograder's zip, with a secret made in `folder`."""
    key = folder / "course.secret"
    key.write_text(SECRET + "\n")
    key.chmod(0o600)
    return bundle.build(config, Source(), key if secret else None)


@contextlib.contextmanager
def tree(archive: Path) -> Iterator[Path]:
    """A tree of Gradescope's with nothing handed in. Not below pytest's folders: those are closed
    to other users, /autograder is not."""
    with tempfile.TemporaryDirectory(prefix="twophase-test-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        root.chmod(0o755)
        rehearsal.lay_out(root, archive, [], "ann@example.edu")
        yield root


def hand_in(root: Path, files: Mapping[str, bytes]) -> None:
    """Put these files, and no others, into the tree's submission/."""
    shutil.rmtree(root / "submission")
    for name, data in files.items():
        path = root / "submission" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (root / "submission").mkdir(exist_ok=True)
    (root / "results" / "results.json").unlink(missing_ok=True)


def run(root: Path, files: Mapping[str, bytes]) -> dict[str, Any]:
    """results.json after run_autograder was run on these files; what it printed is under
    `printed`."""
    hand_in(root, files)
    done = rehearsal.run(root)
    made = rehearsal.read_results(root)
    assert done.returncode == (0 if "score" in made else 1), done.stdout
    return made | {"printed": done.stdout}


def with_answers(path: Path, answers: Mapping[str, str], first: str = "") -> bytes:
    """A model-solution notebook with other answers in it, and perhaps a cell of the student's own
    before all others."""
    book = json.loads(path.read_bytes())
    for cell in book["cells"]:
        grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id")
        if grade_id in answers:
            cell["source"] = answers[grade_id]
    if first:
        own = {
            "cell_type": "code",
            "source": first,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        book["cells"].insert(0, own)
    return json.dumps(book).encode()


def by_exercise(made: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """results.json's entries by exercise."""
    return {t["tags"][0]: t for t in made["tests"] if t.get("tags")}


def family_kib(pid: int) -> int:
    """The proportional set size of a process and all below it, in KiB: what their container must
    hold."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            parent = int(
                Path("/proc", name, "stat")
                .read_text(errors="replace")
                .rpartition(")")[2]
                .split()[1]
            )
            children.setdefault(parent, []).append(int(name))
    todo, total = [pid], 0
    while todo:
        one = todo.pop()
        todo += children.get(one, [])
        with contextlib.suppress(OSError):
            if found := re.search(
                r"^Pss:\s+(\d+)", Path(f"/proc/{one}/smaps_rollup").read_text(), re.M
            ):
                total += int(found[1])
    return total
