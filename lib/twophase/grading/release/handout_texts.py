"""The words of a release: its README for students, and a Makefile with the course's own recipe for
installing."""

from __future__ import annotations

from twophase.checks.manifest import Manifest
from twophase.checks.registry import Catalog

HEAD = """# make lab: it needs nothing before it but Python 3.11 to 3.13.
# On Linux without a GPU:  make lab TORCH_INDEX=https://download.pytorch.org/whl/cpu
"""
TARGETS = """.PHONY: help lab clean

help:
\t@echo "make lab        the exercises in JupyterLab, in my/"
\t@echo "make clean      remove what was installed (never my/)"
"""
CLEAN = """clean:
\trm -rf .venv
"""


def makefile(course: str) -> str:
    """The students' Makefile: how to install as in the course's, and the targets that work without
    its other rooms.

    Raises ValueError if the course's Makefile no longer has these parts.
    """
    blocks = course.split("\n\n")
    found = {}
    for part, begins in (("variables", "PYTHON ?="), ("install", "$(READY):"), ("lab", "lab:")):
        block = next((b for b in blocks if b.startswith(begins)), None)
        if block is None:
            raise ValueError(
                f"the course's Makefile has no block that begins with {begins!r}, which a release"
                " takes over"
            )
        found[part] = block.strip("\n") + "\n"
    kept = [
        line
        for line in found["variables"].splitlines()
        if line.split(" ")[0] in ("PYTHON", "TORCH_INDEX", "BIN", "READY")
    ]
    variables = "\n".join(kept) + "\n"
    return "\n".join([HEAD, variables, TARGETS, found["install"], found["lab"], CLEAN])


README = """# Two Phases: exercises

You need Python 3.11, 3.12 or 3.13 and `make`, on Linux, macOS (Apple silicon) or Windows through WSL2. No GPU.

## Begin

```
make lab
```

The first time this makes `.venv` and installs what the exercises need. On Linux without a GPU add
`TORCH_INDEX=https://download.pytorch.org/whl/cpu`, or the install fetches 2.7 GB that nothing here uses. If your `python3` is
another version: `make lab PYTHON=python3.11`. It then copies the notebooks to `my/` and opens JupyterLab there.

## Work

{table}

Each exercise is a task, a cell for your answer, and a check cell. Run your cell, then the check: it says at once whether you are
right, or what is wrong and why. `hint("{example}")` helps, a step at a time. Where you stopped, and what comes next:

```
.venv/bin/twophase next
```
{held}
## Hand in

Save the notebook, then run it as it will be run when it is graded, from top to bottom, in a process of its own:

```
.venv/bin/twophase self-check my/{stem}.ipynb
```

Then hand in `my/{stem}.ipynb` as your course says, under its own name. Keep the cells that are locked; add as many of
your own as you like. When it is graded, your functions meet inputs that you have not seen.

## A new release

Unpack it over this folder, then bring it into your notebooks; every answer of yours stays:

```
.venv/bin/twophase update
```

Code is under MIT, text under CC BY 4.0 ([LICENSE](LICENSE)).
"""
HELD = """
{exercises} judged after you hand in: the check is not in this release, and its check cell says so. Try such an answer on numbers that you
can work out yourself.
"""


def readme(catalog: Catalog, manifest: Manifest) -> str:
    """What a student reads first: how to install, work, check and hand in; and what there is to
    do."""
    topics = [t for t in catalog.topics() if t in manifest.notebooks]
    ids = [i for t in topics for i in manifest.exercises[t]]
    held = [f"`{i}`" for i in ids if i in manifest.held_back]
    note = (
        HELD.format(exercises=f"{', '.join(held)} {'is' if len(held) == 1 else 'are'}")
        if held
        else ""
    )
    example = next((i for i in ids if i not in manifest.held_back), ids[0])
    return README.format(
        table=_table(catalog, manifest, topics),
        example=example,
        stem=catalog.stem(topics[0]),
        held=note,
    )


def _table(catalog: Catalog, manifest: Manifest, topics: list[str]) -> str:
    rows = ["| notebook | exercises | points | minutes (estimated) |", "|---|---|---|---|"]
    for topic in topics:
        exercises = [catalog.load(i) for i in manifest.exercises[topic]]
        points, minutes = sum(e.points for e in exercises), sum(e.minutes for e in exercises)
        rows.append(
            f"| `my/{catalog.stem(topic)}.ipynb` | {len(exercises)} | {points} | {minutes} |"
        )
    return "\n".join(rows)
