"""The judge of one submission: runs its cells in another process, judges every exercise, and blames
what broke.

When the process dies, hangs or talks nonsense, the cell (`replay`) or the exercise (`look`) at
fault loses; a fresh process replays the other cells and the rest is judged there. An exercise that
fails beside the others is tried once more by itself, so that no cell can take away another one's
points. Half of the submission's time is for all exercises together; the other half is divided among
those that are tried again, so that none can take away another one's time either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from twophase.grading.files.notebook import Notebook
from twophase.grading.judge.benches import Benches
from twophase.grading.judge.look import Look, verdict_of
from twophase.grading.judge.replay import Replay
from twophase.grading.judge.second_look import TRIES, SecondLook
from twophase.grading.judge.time_budget import Allowance, Usage
from twophase.grading.judge.which_cells_run import NOWHERE, make_plan
from twophase.grading.release.release import Release
from twophase.grading.results.grade import Flag, Grade, Graded
from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.session import Session
from twophase.grading.sandbox.zygote_handle import Zygote


class SubmissionJudge:
    """Grades one submission of a release, in processes forked from `zygote`, on the cases of
    `seed`."""

    def __init__(
        self,
        zygote: Zygote,
        release: Release,
        benches: Benches,
        limits: Limits,
        seed: int | str,
        notebook: Notebook,
    ) -> None:
        self._release = release
        self._plan = make_plan(notebook, release)
        worth = {i: float(e.points) for i, e in release.exercises.items()}
        self._replay = Replay(zygote, limits, worth, self._plan.loads_more())
        usage = Usage(limits.waiting_s)
        self._whole = Allowance(usage, limits.submission_s, limits.forks)
        self._together = Allowance(usage, limits.submission_s / 2, limits.forks)
        self._cut: set[str] = set()  # exercises for which the time of all together did not last
        self._look = Look(self._plan, self._replay, benches, seed, usage)
        self._second = SecondLook(
            self._plan, self._replay, self._look, release.exercises, self._cut
        )
        self._grade = Grade(flags=list(self._plan.flags))

    def grade(self) -> Grade:
        """Its grade. Raises GraderFault, and nothing for what the submission does."""
        seen = self._seen(self._plan.order(), whole=self._plan.speaks_below())
        if moved := self._plan.moved(self._replay.called()):
            self._plan.asked.update(moved)
            seen |= self._seen([i for i in self._plan.order() if i in moved])
        with self._replay.kept(self._plan.steps, self._together, 2) as pair:
            for i, first in seen.items():  # once the process of all together has ended
                above = partial(pair, self._plan.asked[i])
                exercise = self._release.exercises[i]
                relayed = self._look.relayed(exercise, first, above, self._together)
                seen[i] = first if relayed is first else self._noted(relayed)
        found = {i: seen[i] for i in self._release.exercises}
        again = [i for i, first in found.items() if self._second.is_deserved_by(first)]
        for n, exercise_id in enumerate(again):
            share = self._whole.share(len(again) - n, TRIES)
            found[exercise_id] = self._second.take(exercise_id, found[exercise_id], share)
        for exercise_id, graded in found.items():
            self._grade.questions.append(graded)
            self._flag(exercise_id, graded)
        for step in self._plan.steps:
            if step.role in ("given", "own") and step in self._replay.guilty:
                why = str(self._replay.guilty[step])
                self._grade.flags.append(Flag("cell_broke", f"cell {step.cell}", why))
        self._grade.trouble |= self._replay.trouble | self._look.trouble
        self._grade.forks = self._replay.forks
        return self._grade

    def _seen(self, exercise_ids: Sequence[str], whole: bool = False) -> dict[str, Graded]:
        """Each exercise asked where its check stands, in one process after the other's cells. If it
        is `whole`, what stands below the last check runs, too."""
        with self._replay.kept(self._plan.steps, self._together) as live:
            seen = {i: self._first(i, live) for i in exercise_ids}
            if whole:
                live(len(self._plan.steps))
        return seen

    def _first(self, exercise_id: str, live: Callable[[int], Sequence[Session]]) -> Graded:
        exercise = self._release.exercises[exercise_id]
        session = next(iter(live(self._plan.asked[exercise_id])), None)
        found = self._noted(self._look.judge(exercise, session, self._together))
        if exercise_id in self._plan.missing and found.verdict.status in ("missing", "failed"):
            return Graded(verdict_of(exercise, "missing", NOWHERE))
        return found

    def _noted(self, graded: Graded) -> Graded:
        """`graded`; if the time of all together did not last for it, that is noted."""
        if graded.verdict.status == "failed" and not self._together.left_s:
            self._cut.add(graded.verdict.exercise_id)
        return graded

    def _flag(self, exercise_id: str, graded: Graded) -> None:
        entries = self._release.exercises[exercise_id].entries
        found = {}
        if graded.alone:
            found["right_alone"] = (
                "It is right by itself, and another cell of the notebook breaks it: judged by"
                " itself."
            )
        told = graded.alone or not graded.verdict.right
        if told and (says := self._defined_again(exercise_id, entries)):
            found["defined_again"] = says
        withheld = [o for o in graded.verdict.outcomes if "Withheld" in o.message]
        if withheld or "Withheld" in graded.cell.types:
            found["uses_withheld"] = (
                "It calls for the course's library, or for the checks: neither is there."
            )
        self._grade.flags += [Flag(name, exercise_id, says) for name, says in found.items()]

    def _defined_again(self, exercise_id: str, entries: Sequence[str]) -> str:
        """Why another answer may have been asked than the one that was meant."""
        says = []
        if caught := self._plan.catches(exercise_id):
            says.append(
                f"Cell {caught} may go on where a check has failed, and here none ever does: an"
                " answer, or a value, that the notebook takes only then is not asked. Leave the one"
                " that is right, and no other."
            )
        if again := self._plan.overwrites(exercise_id, entries):
            says.append(
                f"Cell {again[-1].cell} defines it again, and no check stands between: where all"
                " cells run, that one is asked. Give it another name."
            )
        elif cell := self._plan.changes_after_a_check(exercise_id, entries):
            says.append(
                f"Cell {cell} defines it and then changes or deletes it, and what stands last is"
                " asked: put what is below its check into a cell of its own, below that."
            )
        return " ".join(says)
