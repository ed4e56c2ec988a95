"""Grades one submission in Gradescope's container:
`python -m twophase.grading.gradescope.autograder /autograder`.

Whatever happens, results/results.json is valid: graded, not gradable for a reason that the student
can mend, or without a score. What is printed here is for the instructor only.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

from twophase.grading.course import secret
from twophase.grading.errors import Unreadable
from twophase.grading.files import notebook
from twophase.grading.files.scratch import scratch
from twophase.grading.gradescope import config as gradescope_config
from twophase.grading.gradescope import results
from twophase.grading.gradescope.config import PRIVATE, Config
from twophase.grading.gradescope.results import ResultsJson
from twophase.grading.intake import submissions
from twophase.grading.intake.submissions import Submission
from twophase.grading.judge.judge import Course, Judge, Task
from twophase.grading.release.release import Source
from twophase.grading.sandbox import what_confines
from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.zygote_handle import make_zygote

HOW = "Hand in the one notebook of this assignment, saved, as it was given out."


class NothingToGrade(ValueError):
    """What was handed in is not one notebook of the assignment. The message tells the student."""


def main(arguments: list[str]) -> int:
    """Exit code: 0 there is a score; 1 there is none, which is the grader's fault."""
    if arguments == ["--probe"]:
        return _probe()
    root = Path(arguments[0])
    began = time.monotonic()
    try:
        made = graded(root, began)
    except Exception as e:
        traceback.print_exc(file=sys.stdout)
        made = results.without_score(f"{type(e).__name__}: {e}", time.monotonic() - began)
    results.write(root / "results" / "results.json", made)
    print(made["output"])
    return 0 if "score" in made else 1


def graded(root: Path, began: float) -> ResultsJson:
    """The results for what lies in `root`/submission. Raises for the grader's own faults only."""
    private = root / "source" / PRIVATE
    config = gradescope_config.read_config(private / "config.json")
    if (lacks := what_confines.missing()) and not config.unsafe:
        said = f"{lacks} Nothing was run; the instructor can build the autograder with --unsafe."
        return results.without_score(said, time.monotonic() - began)
    student, submitted = gradescope_config.handed_in(root / "submission_metadata.json")
    source = source_of(config, private)
    try:
        submission = the_one(root / "submission", config.topic, source)
    except NothingToGrade as e:
        return results.unreadable(str(e), time.monotonic() - began, _worth(config, source))
    submission = replace(submission, student=student, submitted=submitted)
    limits = Limits(
        cell_s=config.cell_s,
        submission_s=config.submission_s,
        memory_bytes=gradescope_config.memory_bytes(config),
    )
    names = ("submission", "results", "submission_metadata.json")
    with scratch(), make_zygote([private, *(root / name for name in names)]) as zygote:
        judge = Judge(Course(limits=limits, source=source), zygote)
        record = judge.grade(Task(submission, seed_for(student, config, private)))
    return results.results(record, time.monotonic() - began, _worth(config, source))


def seed_for(student: str, config: Config, private: Path) -> int | str:
    """The cases' seed: of the secret and of whom Gradescope names, never of what was handed in."""
    path = private / "secret"
    if not path.exists():
        return config.seed
    return secret.seed_of(secret.read_secret(path), student, config.sets)


def source_of(config: Config, private: Path) -> Source:
    """What is graded against: the zip's folders; through TWOPHASE_COURSE the course's notebooks."""
    os.environ["TWOPHASE_COURSE"] = str(private)
    return Source(
        release=private / config.release if config.release else None,
        checks=tuple(private / name for name in config.checks),
        variants=private / config.variants if config.variants else None,
    )


def the_one(folder: Path, topic: str, source: Source) -> Submission:
    """The one notebook of `topic` (empty: of any) that was handed in. Raises NothingToGrade."""
    try:
        found = submissions.find(folder, "plain")
    except ValueError:
        raise NothingToGrade(
            f"There is no notebook (.ipynb) in what was handed in. {HOW}"
        ) from None
    topics = {s: _topic(s, source) for s in found}
    if len(found) == 1 and (not topic or topics[found[0]] is None):
        return found[0]  # the grader says why, if it cannot be read
    fitting = [s for s, t in topics.items() if t and topic in ("", t)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(s.name for s in fitting)
        raise NothingToGrade(
            f"There are {len(fitting)} notebooks in what was handed in ({names}). {HOW}"
        )
    others = ", ".join(f"{s.name} ({_content(s, t, topic, source)})" for s, t in topics.items())
    raise NothingToGrade(
        f"No notebook of {topic or 'this course'} was handed in, but {others}. {HOW}"
    )


def _topic(submission: Submission, source: Source) -> str | None:
    """Whose notebook it is, or None if it cannot be read or is of no topic."""
    try:
        return source.topic_of(notebook.parse(submission.read()), Path(submission.name).name)
    except Unreadable:
        return None


def _content(submission: Submission, found: str | None, wanted: str, source: Source) -> str:
    """What a notebook is that is not of the topic that is wanted."""
    if found is None:
        return "not readable"
    n = source.besides(notebook.parse(submission.read()), found).get(wanted, 0)
    return f"of {found}, with {n} of the exercises of {wanted} in it" if n else found


def _worth(config: Config, source: Source) -> float | None:
    if not config.topic:
        return None
    return float(sum(e.points for e in source.load(config.topic).exercises.values()))


def _probe() -> int:
    """For the log of the image's build: what there is."""
    lacks = what_confines.missing()
    layers = ", ".join(what_confines.confined_by())
    print(f"twophase: submissions are confined by {layers}. {lacks}".rstrip())
    memory_mib = gradescope_config.container_bytes() / 2**20
    print(f"twophase: memory of this container {memory_mib:.0f} MiB")
    with make_zygote() as zygote:
        zygote.start()
    print("twophase: the worker starts")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
