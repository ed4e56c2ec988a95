"""From solutions/ to exercises/: `make exercises`, for authors.

For every solutions/NN_topic.ipynb: bring it into canonical form, check it against the exercises'
modules, run it and store its outputs, and write exercises/NN_topic.ipynb. The same input gives the
same bytes.

    .venv/bin/python tools/exercises.py [--no-execute] [--check] [topic ...]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from twophase.grading.release.exercise_notebook import (
    BadNotebook,
    normalize,
    release,
    to_bytes,
    topic_of,
    validate,
)

ROOT = Path(__file__).resolve().parents[1]
CELL_TIMEOUT_S = 120


def read(path: Path) -> NotebookNode:
    """A model-solution notebook in canonical form, found valid. Raises BadNotebook."""
    try:
        nb = nbformat.read(path, as_version=4)
    except Exception as e:  # nbformat raises what it likes for a file that is no notebook
        raise BadNotebook(f"it is no notebook ({type(e).__name__})") from None
    topic = topic_of(path)
    nb = normalize(nb, topic)
    validate(nb, topic)
    return nb


def execute(nb: NotebookNode, folder: Path) -> NotebookNode:
    """Run every cell in a fresh kernel and store what it shows. Raises BadNotebook if a cell
    fails."""
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        nb,
        timeout=CELL_TIMEOUT_S,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=[
            "--IPKernelApp.log_level=ERROR"
        ],  # the kernel's own warnings are no business of authors
        resources={"metadata": {"path": str(folder)}},
    )
    try:
        client.execute()
    except CellExecutionError as e:
        failed = next(
            (c.id for c in nb.cells if any(o.output_type == "error" for o in c.get("outputs", []))),
            "a cell",
        )
        raise BadNotebook(f"{failed} fails: {e.ename}: {e.evalue}") from None
    nb.metadata["language_info"] = nbformat.from_dict(
        {"name": "python"}
    )  # the kernel adds its version
    return nb


def write(path: Path, data: bytes) -> bool:
    """Replace a file at once, if its content differs. Returns whether it did."""
    if path.exists() and path.read_bytes() == data:
        return False
    path.parent.mkdir(exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    with os.fdopen(handle, "wb") as f:
        f.write(data)
    os.chmod(name, 0o644)
    os.replace(name, path)
    return True


def make(path: Path, run: bool) -> str:
    """Bring one topic up to date; returns what was done."""
    started = time.perf_counter()
    nb = read(path)
    released = to_bytes(release(nb))  # before anything is written: a broken stub stops here
    if run:
        nb = execute(nb, path.parent)
    changed = [
        f"{p.parent.name}/{p.name}"
        for p, data in ((path, to_bytes(nb)), (exercise_path(path), released))
        if write(p, data)
    ]
    return f"{', '.join(changed) or 'nothing new'} ({time.perf_counter() - started:.1f} s)"


def check(path: Path) -> str:
    """Whether exercises/ is what this notebook gives; writes nothing. Raises BadNotebook if it has
    drifted."""
    nb, target = read(path), exercise_path(path)
    where = f"{target.parent.name}/{target.name}"
    if not target.exists():
        raise BadNotebook(f"{where} is missing: run `make exercises`")
    if target.read_bytes() != to_bytes(release(nb)):
        raise BadNotebook(
            f"{where} is not what {path.parent.name}/{path.name} gives: run `make exercises`"
        )
    if path.read_bytes() != to_bytes(nb):
        raise BadNotebook(
            f"{path.parent.name}/{path.name} is not in canonical form: run `make exercises`"
        )
    return "up to date"


def exercise_path(path: Path) -> Path:
    return path.parent.parent / "exercises" / path.name


def strays(paths: list[Path], root: Path) -> list[Path]:
    """Exercise notebooks without a model solution."""
    return [
        p
        for p in sorted((root / "exercises").glob("*.ipynb"))
        if p.name not in {q.name for q in paths}
    ]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Make exercises/ from solutions/.")
    parser.add_argument("topics", nargs="*", help="only these, as kv_cache or 03_kv_cache")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if exercises/ has drifted"
    )
    parser.add_argument(
        "--no-execute",
        action="store_true",
        help="leave the stored outputs of solutions/ as they are",
    )
    options = parser.parse_args(arguments)
    every = sorted((root / "solutions").glob("[0-9][0-9]_*.ipynb"))
    paths = [
        p
        for p in every
        if not options.topics or p.stem in options.topics or p.stem[3:] in options.topics
    ]
    if not paths:
        print("there is no such notebook in solutions/", file=sys.stderr)
        return 1
    failed = False
    for path in paths:
        print(f"{path.stem}: ", end="", flush=True)
        try:
            print(
                check(path) if options.check else make(path, run=not options.no_execute), flush=True
            )
        except BadNotebook as e:
            failed = True
            print(e, flush=True)
    for stray in strays(every, root):
        failed = True
        print(
            f"{stray.stem}: exercises/{stray.name} has no notebook in solutions/; delete it by hand"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
