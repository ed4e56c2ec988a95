"""Hints, one step further at a time, and the author's answer."""

from __future__ import annotations

from twophase.lab import course, record
from twophase.lab.checking import exercise_of
from twophase.lab.shown import Note, Source

_given: dict[str, int] = {}  # hints shown in this process, by exercise


ALONE = "Read its task once more, and try your answer on numbers that you can work out yourself."


def in_a_release() -> bool:
    """Whether this is what an instructor handed out, and no clone of the course."""
    from twophase.checks import registry

    return registry.COURSE.manifest is not None


def next_hint(exercise_id: str) -> Note:
    """The next of the exercise's three hints; after the third, the third again."""
    from twophase.checks.manifest import HeldBack

    exercise = exercise_of(exercise_id)
    if isinstance(exercise, HeldBack):
        return Note("No hints", f"{exercise_id} is judged after you hand in, and has none. {ALONE}")
    n = min(_given.get(exercise_id, 0) + 1, len(exercise.hints))
    again = _given.get(exercise_id) == n
    _given[exercise_id] = n
    if not again:
        record.write("hint", exercise_id, number=n)
    last = (
        f' That is the last hint; after an attempt, solution("{exercise_id}") shows an answer.'
        if again
        else ""
    )
    return Note(f"Hint {n} of {len(exercise.hints)}", exercise.hints[n - 1] + last)


def author_answer(exercise_id: str, give_up: bool = False) -> Note | Source:
    """The author's answer after an attempt; before one, a word of encouragement."""
    from twophase.checks.manifest import HeldBack

    exercise = exercise_of(exercise_id)
    if isinstance(exercise, HeldBack):
        return Note(
            "Not here",
            f"{exercise_id} is judged after you hand in; its solution is with who teaches the"
            " course.",
        )
    standing = record.standings(record.read()).get(exercise_id, record.Standing())
    if standing.state == "open" and not give_up:
        return Note(
            "Try first",
            f"Write an answer, run its cell and the check; then this shows the author's. "
            f'A hint: hint("{exercise_id}"). To see it all the same: solution("{exercise_id}",'
            " give_up=True)",
        )
    source = course.author_source(exercise_id, course.COURSE)
    if source is None and in_a_release():
        return Note(
            "Not in this release",
            "The model solutions are with who teaches the course; ask when they are shown.",
        )
    if source is None:
        return Note(
            "No solution here",
            f"solutions/ is not beside this course, so {exercise_id} has none to show.",
        )
    record.write("solution", exercise_id)
    return Source(f"{exercise.title}: the author's answer, one of several right ones", source)
