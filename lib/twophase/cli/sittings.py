"""The sittings of a chapter, where a learner stopped, and the questions that bring back what was
done."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from twophase.checks import registry
from twophase.checks.exercise import Exercise
from twophase.checks.manifest import HeldBack
from twophase.grading.files.notebook import grade_id
from twophase.grading.release.compose import cells_of
from twophase.lab import record
from twophase.lab.course import COURSE
from twophase.lab.tables import finished

QUESTIONS = 2
STATES = {
    "right": "solved",
    "wrong": "not right yet",
    "failed": "not right yet",
    "later": "to be judged after handing in",
}
Listed = Exercise | HeldBack


@dataclass
class Sitting:
    """A stretch of a chapter with exercises: its heading in the notebook, and these."""

    title: str
    exercises: list[Listed]


def of_topic(topic: str, course: Path = COURSE) -> list[Sitting]:
    """A topic's sittings as its notebook in exercises/ heads them, in order; one without a title
    where there is no such notebook. What the notebook lacks comes with the last one."""
    left = {exercise.id: exercise for exercise in registry.listed(topic)}
    found = [Sitting("", [])]
    for cell in _cells(course / "exercises" / f"{registry.stem(topic)}.ipynb"):
        if heading := re.match(r"#+ (Sitting \d+.*?)(?: \(\d+ minutes?\))?$", cell[1], re.M):
            found.append(Sitting(heading[1], []))
        elif cell[0] in left:
            found[-1].exercises.append(left.pop(cell[0]))
    found[-1].exercises += left.values()
    return [sitting for sitting in found if sitting.exercises]


def _cells(notebook: Path) -> list[tuple[str, str]]:
    """The id and the text of each cell; none where there is no notebook that can be read."""
    try:
        return [(grade_id(cell), cell["source"]) for cell in cells_of(notebook)]
    except ValueError:
        return []


def known_topic(name: str) -> str:
    """The topic called `kv_cache` or `03_kv_cache`. Raises ValueError, listing the known ones."""
    topics = registry.topics()
    for topic in topics:
        if name in (topic, registry.stem(topic)):
            return topic
    raise ValueError(f"there is no topic {name!r} with exercises; there are {', '.join(topics)}")


def _attempts(events: list[record.Event]) -> list[record.Event]:
    """The checks, oldest first, of exercises that still exist."""
    known = {i for t in registry.topics() for i in registry.listed_ids(t)}
    return [e for e in events if e.get("event") == "check" and e["id"] in known]


def last_topic(events: list[record.Event]) -> str | None:
    """The topic of the latest check."""
    attempts = _attempts(events)
    return str(attempts[-1]["id"]).partition("-")[0] if attempts else None


def where_stopped(events: list[record.Event], course: Path = COURSE) -> list[str]:
    """What was done last and what to do next, in a few lines."""
    attempts, standings = _attempts(events), record.standings(events)
    lines = ["You have not started yet."]
    if attempts:
        e = attempts[-1]
        lines = [
            f"Last: {e['id']}, {STATES.get(str(e.get('status')), 'tried')}, on"
            f" {str(e.get('time'))[:10]}."
        ]
    here = last_topic(events)
    topics = registry.topics()
    start = topics.index(here) if here else 0
    for topic in [*topics[start:], *topics[:start]]:
        for sitting in of_topic(topic, course):
            left = [e for e in sitting.exercises if not finished(e.id, standings)]
            if left:
                minutes = sum(e.minutes for e in left)
                place = f"my/{registry.stem(topic)}.ipynb"
                lines.append(
                    f"Next: {', '.join(filter(None, (place, sitting.title)))}, about {minutes}"
                    " minutes (estimated):"
                )
                return [*lines, *(f"  {e.id}  {e.title}, {e.minutes} min" for e in left)]
    return [*lines, "Every exercise is done."]


def recall_questions(events: list[record.Event]) -> list[Exercise]:
    """Two exercises that are done, those not asked about for longest."""
    done = [i for i, s in record.standings(events).items() if s.state == "done"]
    existing = [i for t in registry.topics() for i in registry.ids(t) if i in done]
    asked = {e["id"]: n for n, e in enumerate(events, 1) if e.get("event") == "recall"}
    return [registry.load(i) for i in sorted(existing, key=lambda i: asked.get(i, 0))[:QUESTIONS]]


def ask(exercises: list[Exercise], file: Path) -> None:
    """Ask, wait for Enter, answer; where nobody sits at the keyboard, all questions and then all
    answers."""
    if not exercises:
        print("\nRecall questions come with the first exercise you solve.")
        return
    print("\nFrom memory:")
    waits = sys.stdin.isatty() and sys.stdout.isatty()
    for number, exercise in enumerate(exercises, 1):
        print(f"{number}. {exercise.recall[0]}")
        if waits:
            try:
                input("   Enter shows the answer. ")
            except EOFError:  # Ctrl-D: enough for today
                print()
                return
            print(f"   {exercise.recall[1]}")
        if file.is_file():
            record.write("recall", exercise.id, file)
    if not waits:
        print("\nAnswers:")
        for number, exercise in enumerate(exercises, 1):
            print(f"{number}. {exercise.recall[1]}")
