"""How long a class takes to grade, how much memory, what its checks take alone, and how long
nbgrader's autograde takes on the same notebooks in the same run.

    .venv/bin/python bench/grading.py --submissions 400 --workers 2 --nbgrader 8
    .venv/bin/python bench/grading.py --submissions 5000 --workers 2 --nbgrader 0       # is memory
    flat?

Every submission's points are compared with what its answers are worth: a fast grader that is wrong
is no use.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median

import nbformat
from grading_time import checks_alone, processes, processor_s
from made_class import ROOT, notebook

from twophase.checks import registry
from twophase.grading.intake.submissions import find
from twophase.grading.judge.judge import Course
from twophase.grading.results.records import Record
from twophase.grading.results.writer import Results
from twophase.grading.run.folder import grade_folder


def memory_bytes() -> int:
    """The memory of all our processes, shared pages counted once (PSS)."""
    total = 0
    for pid in processes():
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def write_class(folder: Path, topic: str, n: int, exercises: int) -> dict[str, float]:
    """Write `n` submissions. Returns the points that each must get."""
    expected = {}
    for i in range(n):
        data, points = notebook(topic, i, exercises)
        name = f"s{i:05}/{registry.stem(topic)}.ipynb"
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(data)
        expected[name] = points
    return expected


def ours(folder: Path, out: Path, expected: dict[str, float], workers: int) -> tuple[float, float]:
    """Grade the class from a cold start; print the times. Returns seconds per submission and worker
    once warm, of the clock and of processors."""
    began = time.perf_counter()
    times: list[float] = []
    used: list[float] = []
    memory: list[int] = []
    first = len(expected) // 5  # until then the processes load their libraries and draw the cases
    every = max(1, len(expected) // 10)
    wrong: list[str] = []

    def told(record: Record | None) -> None:
        assert record is not None
        times.append(time.perf_counter() - began)
        if len(times) in (first + 1, len(expected)):
            used.append(processor_s())
        if len(times) % every == 0:
            memory.append(memory_bytes())
        if record["points"] != expected[record["file"]]:
            wrong.append(
                f"{record['file']}: {record['points']} instead of {expected[record['file']]}"
            )

    with Results(out) as results:
        grade_folder(find(folder), Course(), results, workers, told)
    warm = (times[-1] - times[first]) / (len(times) - 1 - first) * workers
    processor = (used[-1] - used[0]) / (len(times) - 1 - first)
    print(
        f"  ours, {workers} workers: {times[-1]:6.2f} s in all, the first after {times[0]:.2f} s;"
        f" once warm {1000 * warm:.1f} ms for each submission and worker,"
        f" {1000 * processor:.1f} ms of processor time"
    )
    print(f"    memory after each tenth, MB: {' '.join(f'{m / 1e6:.0f}' for m in memory)}")
    print(
        "    points: all as they must be" if not wrong else "\n".join(["    WRONG POINTS", *wrong])
    )
    return warm, processor


def beside_checks(folder: Path, topic: str, names: list[str], processor: float) -> float:
    """Print what the checks of these submissions take without a grader around them. Returns seconds
    of processor time for each."""
    alone = checks_alone(topic, [(folder / name).read_bytes() for name in names])
    print(
        f"  the checks alone, {len(names)} of them: {1000 * mean(alone):.1f} ms of processor time"
        f" each (median {1000 * median(alone):.1f}); grading takes"
        f" {processor / mean(alone):.2f} times as long"
    )
    return mean(alone)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Without stderr, also that of kernels: they warn at every start."""
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


def nbgraders(folder: Path, topic: str, names: list[str]) -> float:
    """Seconds that nbgrader's autograde takes for each of these submissions, one after the other in
    this process."""
    from nbgrader.apps import NbGraderAPI
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config import Config

    os.environ["PATH"] = (  # it starts `alembic` by name
        f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    with tempfile.TemporaryDirectory() as home:
        config = Config()
        config.CourseDirectory.root = home
        config.CourseDirectory.course_id = "course"
        config.CourseDirectory.db_url = f"sqlite:///{home}/gradebook.db"
        config.NbGrader.logfile = ""
        config.Execute.timeout = 120
        source = Path(home, "source", "a")
        source.mkdir(parents=True)
        solution = nbformat.read(ROOT / "solutions" / f"{registry.stem(topic)}.ipynb", as_version=4)
        nbformat.write(solution, source / f"{registry.stem(topic)}.ipynb")
        api = NbGraderAPI(CourseDirectory(config=config), config=config)
        if not api.generate_assignment("a")["success"]:
            raise SystemExit("nbgrader could not make the assignment")
        for name in names:
            student = Path(home, "submitted", name.split("/")[0], "a")
            student.mkdir(parents=True)
            shutil.copy(folder / name, student)
        with silent():
            began = time.perf_counter()
            for name in names:
                api.autograde("a", name.split("/")[0])
            return (time.perf_counter() - began) / len(names)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--submissions", type=int, default=400)
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options.add_argument(
        "--topic", choices=registry.topics(), action="append", help="without it, every topic"
    )
    options.add_argument("--exercises", type=int, default=100, help="only so many of the topic's")
    options.add_argument(
        "--nbgrader", type=int, default=4, help="how many of them nbgrader grades too; 0: none"
    )
    options.add_argument(
        "--alone", type=int, default=40, help="how many of them are judged by the checks alone, too"
    )
    given = options.parse_args()
    graded, judged = [], []
    topics = given.topic or registry.topics()
    for topic in topics:
        asked = min(given.exercises, len(registry.ids(topic)))
        print(f"{topic}: {given.submissions} submissions of {asked} exercises")
        with tempfile.TemporaryDirectory() as home:
            folder = Path(home, "in")
            expected = write_class(folder, topic, given.submissions, given.exercises)
            warm, processor = ours(folder, Path(home, "out"), expected, given.workers)
            some = list(expected)[:: max(1, len(expected) // given.alone)][: given.alone]
            graded.append(processor)
            judged.append(beside_checks(folder, topic, some, processor))
            names = list(expected)[: given.nbgrader]
            if names:
                theirs = nbgraders(folder, topic, names)
                print(
                    f"  nbgrader, one process: {theirs:.2f} s each for {len(names)} of them:"
                    f" {theirs / warm:.0f} times as long"
                )
    if len(topics) > 1:
        print(
            f"a notebook of each topic: {1000 * sum(graded):.0f} ms of processor time, the checks"
            f" alone {1000 * sum(judged):.0f}: {sum(graded) / sum(judged):.2f} times as long"
        )


if __name__ == "__main__":
    main()
