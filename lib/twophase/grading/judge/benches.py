"""The benches of a judge: cases, right answers and wrong ones, drawn once for each exercise and
seed and then shared."""

from __future__ import annotations

from collections import OrderedDict

from twophase.checks.exercise import Exercise
from twophase.checks.judge import Bench
from twophase.grading.errors import GraderFault

# benches of about 100 KB: sixteen sets of cases for each exercise of the longest chapter, and room
KEEP = 400


class Benches:
    """At most `keep` benches, the least recently used dropped, so that memory stays flat however
    many seeds come along.

    With `public_only` their cases are those that a learner may see. One judge's own: checks need
    not be safe for threads.
    """

    def __init__(self, keep: int = KEEP, public_only: bool = False) -> None:
        self.keep = keep
        self.public_only = public_only
        self._made: OrderedDict[tuple[str, int | str], Bench] = OrderedDict()

    def __len__(self) -> int:
        return len(self._made)

    def of(self, exercise: Exercise, seed: int | str) -> Bench:
        """Raises GraderFault if the exercise's own reference does not survive its cases."""
        key = exercise.id, seed
        bench = self._made.get(key)
        if bench is None or bench.exercise is not exercise:
            bench = self._made[key] = self._make(exercise, seed)
        self._made.move_to_end(key)
        while len(self._made) > max(1, self.keep):
            self._made.popitem(last=False)
        return bench

    def forget(self, exercise: Exercise, seed: int | str) -> None:
        """Draw this bench afresh when it is next asked for."""
        self._made.pop((exercise.id, seed), None)

    def _make(self, exercise: Exercise, seed: int | str) -> Bench:
        try:
            return Bench(exercise, seed, self.public_only)
        except Exception as e:
            raise GraderFault(f"the check of {exercise.id} fails on its own reference: {e}") from e
