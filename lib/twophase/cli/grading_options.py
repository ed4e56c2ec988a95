"""The options that the grading commands share, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from twophase.cli.interrupt_while_loading import loading
from twophase.cli.progress_bars import patience
from twophase.grading.course import secret
from twophase.grading.judge.judge import Course
from twophase.grading.release.release import Source
from twophase.grading.sandbox import what_confines
from twophase.grading.sandbox.limits import Limits

UNITS = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
LEAST_MEMORY_BYTES = 100_000_000
BEYOND = "beyond the libraries'"
USUAL = Limits()
USUAL_MEMORY = f"{USUAL.memory_bytes / 1e9:g}GB"

GRADES = Path("grades")
Out = Annotated[Path, typer.Option(help="Where results.jsonl and feedback/ go.")]
Seed = Annotated[int, typer.Option(help="Seed of the cases. The check cells in a notebook use 0.")]
TimeLimit = Annotated[
    float, typer.Option(min=1, help="Longest time for one submission, in seconds.")
]
CellTimeLimit = Annotated[
    float, typer.Option(min=0.1, help="Longest time for one cell, in seconds.")
]
MemoryLimit = Annotated[
    str, typer.Option(help=f"Memory for one submission {BEYOND}: 2GB, 512MB, 1.5GiB.")
]
Release = Annotated[
    Path | None,
    typer.Option(
        "--release", help="What was handed out: the folder that `twophase release` wrote."
    ),
]
Checks = Annotated[
    list[Path] | None,
    typer.Option(
        "--checks", help="A folder with exercises of your own; may be given several times."
    ),
]
Variants = Annotated[
    Path | None,
    typer.Option("--variants", help="A folder with held-back siblings of public exercises."),
]
Secret = Annotated[
    Path | None,
    typer.Option(
        "--secret", help="File with the course's secret: cases differ from student to student."
    ),
]
CaseSets = Annotated[
    int,
    typer.Option(
        min=0, help="With --secret: how many sets of cases students share; 0: one for each student."
    ),
]

NO_SECRET = (
    "Without --secret everybody has the same cases, and whoever has the course can draw them too: a"
    " table of their answers would pass."
)


def memory_bytes(text: str) -> int:
    """`2GB`, `512MB`, `1.5GiB` or a number of GB, in bytes. Raises ValueError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+) ?([kmg]i?b)?", text.strip().lower())
    if not found:
        raise ValueError(
            f"--memory-limit {text!r} is no amount of memory; write it as 2GB, 512MB or 1.5GiB"
        )
    size = float(found[1]) * UNITS[found[2] or "gb"]
    if not LEAST_MEMORY_BYTES <= size < 2**62:
        raise ValueError(
            f"--memory-limit {text!r} leaves nothing to work with; give at least 100MB"
        )
    return int(size)


def limits(time_limit: float, cell_time_limit: float, memory_limit: str) -> Limits:
    """Raises ValueError for an amount of memory that is none."""
    return Limits(
        cell_s=cell_time_limit, submission_s=time_limit, memory_bytes=memory_bytes(memory_limit)
    )


def course(
    seed: int,
    the_limits: Limits,
    source: Source,
    secret_file: Path | None = None,
    case_sets: int = secret.SETS,
    hidden: Iterable[Path | None] = (),
) -> Course:
    """What is graded against; no submission may read what is `hidden`, the secret, or an
    instructor's folders. Raises ValueError for a bad secret, and for mistakes in the folders."""
    known = b"" if secret_file is None else secret.read_secret(secret_file)
    if source != Source():
        with patience("loading the exercises and their checks"), loading():  # they import torch
            source.validate()
    apart = tuple(p.absolute() for p in (secret_file, *hidden, *source.private()) if p is not None)
    return Course(seed, the_limits, source, known, case_sets, hidden=apart)


def require_notebook(path: Path) -> None:
    """Raises ValueError if there is no such file."""
    if not path.exists() and not path.is_symlink():
        raise ValueError(
            f"there is no file {path}; give a saved notebook, such as my/03_kv_cache.ipynb"
        )


def require_folder(out: Path) -> None:
    """Raises ValueError if a file is in the place of the folder to write to, or of one above it."""
    there = next((p for p in (out, *out.parents) if p.exists()), Path())
    if not there.is_dir():
        raise ValueError(f"{there} is a file; give a folder to --out")


def require_confinement(unsafe: bool) -> None:
    """Raises ValueError if something that confines is missing here and grading is not `unsafe`."""
    if reason := what_confines.supported():
        raise ValueError(reason)
    if (lacks := what_confines.missing()) and not unsafe:
        raise ValueError(lacks)
