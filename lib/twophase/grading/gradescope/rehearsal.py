"""A rehearsal of Gradescope here: the zip and a submission in a tree laid out as theirs, and run.

Only setup.sh is not run: the Python of this process stands in for the one that it installs.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from twophase.grading.gradescope import bundle
from twophase.grading.gradescope.results import ResultsJson

LONGEST_S = 600.0  # Gradescope's own limit, unless an instructor raises it
Visibility = Literal["hidden", "after_due_date", "after_published", "visible"]
Format = Literal["text", "html", "simple_format", "md", "ansi"]


class GradescopeTest(TypedDict, total=False):
    """What Gradescope's specification has of a test."""

    score: float
    max_score: float
    status: Literal["passed", "failed"]
    name: str
    name_format: Format
    number: str
    output: str
    output_format: Format
    tags: list[str]
    visibility: Visibility
    extra_data: dict[str, Any]


def _earned(test: GradescopeTest) -> GradescopeTest:
    most = test.get("max_score", math.inf)
    if not 0 <= test.get("score", 0) <= most:
        raise ValueError(f"score is not between 0 and {most}")
    return test


class GradescopeResults(TypedDict, total=False):
    """What Gradescope's specification has of results.json."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")  # type: ignore[misc]

    score: float
    execution_time: float
    output: str
    output_format: Format
    test_output_format: Format
    test_name_format: Format
    visibility: Visibility
    stdout_visibility: Visibility
    extra_data: dict[str, Any]
    tests: list[Annotated[GradescopeTest, AfterValidator(_earned)]]


@dataclass(frozen=True)
class Rehearsal:
    """What came of it: results.json, the output that an instructor would see, the exit code."""

    results: ResultsJson
    output: str
    code: int


def rehearse(
    archive: Path, handed_in: Sequence[Path], student: str = "student@example.edu"
) -> Rehearsal:
    """Run `archive` on these files. Raises ValueError if it is no autograder, a file is missing, or
    no results.json is left."""
    prefix = "twophase-gradescope-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        root = Path(name)
        root.chmod(0o755)  # as /autograder is: a submission runs as another user
        lay_out(root, archive, handed_in, student)
        done = run(root)
        return Rehearsal(read_results(root), done.stdout, done.returncode)


def lay_out(root: Path, archive: Path, handed_in: Sequence[Path], student: str) -> None:
    """Gradescope's tree below `root`."""
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
    kept = ("PATH", "LANG", "LD_LIBRARY_PATH", "TMPDIR")
    env = {name: value for name, value in os.environ.items() if name in kept}
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
    try:
        TypeAdapter(GradescopeResults).validate_python(made)
    except ValidationError as e:
        return [f"{'.'.join(map(str, x['loc']))}: {x['msg']}" for x in e.errors(include_url=False)]
    return []
