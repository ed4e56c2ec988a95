"""A rehearsal of Gradescope on this machine: the zip unpacked in a tree laid out as theirs, a
submission in it, run_autograder run.

Only setup.sh is not run: the Python of this process stands in for the one that it installs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twophase.grading.gradescope import bundle
from twophase.grading.gradescope.results import ResultsJson

VISIBILITY = ("hidden", "after_due_date", "after_published", "visible")
FORMATS = ("text", "html", "simple_format", "md", "ansi")
LONGEST_S = 600.0  # Gradescope's own limit, unless an instructor raises it
TOP: Mapping[str, Any] = {
    "score": (int, float),
    "execution_time": (int, float),
    "output": str,
    "output_format": FORMATS,
    "test_output_format": FORMATS,
    "test_name_format": FORMATS,
    "visibility": VISIBILITY,
    "stdout_visibility": VISIBILITY,
    "extra_data": dict,
    "tests": list,
}
TEST: Mapping[str, Any] = {
    "score": (int, float),
    "max_score": (int, float),
    "status": ("passed", "failed"),
    "name": str,
    "name_format": FORMATS,
    "number": str,
    "output": str,
    "output_format": FORMATS,
    "tags": list,
    "visibility": VISIBILITY,
    "extra_data": dict,
}


@dataclass(frozen=True)
class Rehearsal:
    """What came of it: results.json as it is, what an instructor would see of the output, and
    run_autograder's exit code."""

    results: ResultsJson
    output: str
    code: int


def rehearse(
    archive: Path, handed_in: Sequence[Path], student: str = "student@example.edu"
) -> Rehearsal:
    """Run `archive` on these files. Raises ValueError if it is no autograder, a file is missing, or
    no results.json is left."""
    with tempfile.TemporaryDirectory(
        prefix="twophase-gradescope-", ignore_cleanup_errors=True
    ) as name:
        root = Path(name)
        root.chmod(0o755)  # as /autograder is: a submission runs as another user
        lay_out(root, archive, handed_in, student)
        done = run(root)
        return Rehearsal(read_results(root), done.stdout, done.returncode)


def lay_out(root: Path, archive: Path, handed_in: Sequence[Path], student: str) -> None:
    """Gradescope's tree: source/, submission/, results/, submission_metadata.json,
    run_autograder."""
    bundle.unpack(archive, root / "source")
    shutil.copy(root / "source" / "run_autograder", root / "run_autograder")
    (root / "results").mkdir()
    (root / "submission").mkdir()
    for path in handed_in:
        if not path.exists():
            raise ValueError(f"there is no file {path}; give what a student would hand in")
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, root / "submission" / path.name)
    (root / "submission_metadata.json").write_text(json.dumps(metadata(student)), encoding="utf-8")


def metadata(student: str) -> dict[str, Any]:
    """submission_metadata.json as Gradescope writes it, of one student."""
    return {
        "id": 1,
        "created_at": "2026-10-01T12:00:00.000000-07:00",
        "assignment": {
            "id": 1,
            "course_id": 1,
            "title": "Rehearsal",
            "due_date": "2026-10-08T23:00:00.000000-07:00",
            "late_due_date": None,
            "release_date": "2026-09-01T00:00:00.000000-07:00",
            "group_submission": False,
            "group_size": None,
            "total_points": "0.0",
            "outline": [],
        },
        "submission_method": "upload",
        "users": [{"email": student, "id": 1, "name": "Student"}],
        "previous_submissions": [],
    }


def run(root: Path, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """run_autograder as their harness runs it, in the tree at `root`."""
    env = {
        k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LD_LIBRARY_PATH", "TMPDIR")
    }
    env |= {"TWOPHASE_AUTOGRADER_ROOT": str(root), "TWOPHASE_AUTOGRADER_PYTHON": python}
    return subprocess.run(
        [str(root / "run_autograder")],
        cwd=root,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=LONGEST_S,
        check=False,
    )


def read_results(root: Path) -> ResultsJson:
    """results.json of this tree. Raises ValueError if Gradescope would not understand it."""
    path = root / "results" / "results.json"
    try:
        made: ResultsJson = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise ValueError(
            f"the autograder left no valid results.json ({e}); please report it"
        ) from None
    if found := problems(made):
        raise ValueError(
            f"the autograder's results.json is not as Gradescope wants it: {'; '.join(found)}"
        )
    return made


def problems(made: Any) -> list[str]:
    """Where this is not what Gradescope's specification describes; an empty list if all is well."""
    if not isinstance(made, dict):
        return ["it is no object"]
    found = _misfits("", made, TOP)
    tests = made.get("tests", [])
    for n, test in enumerate(tests if isinstance(tests, list) else []):
        if not isinstance(test, dict):
            found.append(f"tests[{n}] is no object")
            continue
        wrong = _misfits(f"tests[{n}].", test, TEST)
        if not wrong and not 0 <= test.get("score", 0) <= test.get("max_score", float("inf")):
            wrong = [f"tests[{n}].score is not between 0 and {test['max_score']}"]
        found += wrong
    return found


def _misfits(where: str, tree: dict[str, Any], fields: Mapping[str, Any]) -> list[str]:
    found = [f"{where}{name} is unknown" for name in tree if name not in fields]
    for name, value in tree.items():
        wanted = fields.get(name, object)
        choices = isinstance(wanted, tuple) and isinstance(wanted[0], str)
        fits = (
            value in wanted
            if choices
            else isinstance(value, wanted) and not isinstance(value, bool)
        )
        found += [] if fits else [f"{where}{name} is {value!r:.80}"]
    return found
