"""The second look: an exercise that is not right beside the others is tried once more by itself,
so that no cell can take away another one's points. It must then be right whenever it is looked at,
so that an answer which guesses gains nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from twophase.checks.exercise import Exercise
from twophase.grading.judge.look import Look
from twophase.grading.judge.replay import Replay
from twophase.grading.judge.time_budget import Allowance
from twophase.grading.judge.which_cells_run import ExecutionPlan, Step
from twophase.grading.results.grade import Graded

TRIES = 3  # processes for an exercise by itself: two cells may turn out to break it
CONFIRMATIONS = 3  # more processes in which an answer must be right that was not at the first look


@dataclass(frozen=True)
class SecondLook:
    """Decides what of one submission is looked at again, and does it. `cut`: the exercises for
    which the time of all together did not last."""

    plan: ExecutionPlan
    replay: Replay
    look: Look
    exercises: Mapping[str, Exercise]
    cut: set[str]

    def is_deserved_by(self, first: Graded) -> bool:
        """Whether it is not right, and another cell may be to blame."""
        verdict, exercise_id = first.verdict, first.verdict.exercise_id
        if verdict.right or not self.plan.answers(exercise_id):
            return False
        if verdict.status in ("wrong", "missing") and not self.plan.may_suffer(exercise_id):
            return False
        if verdict.status == "not_yet":  # said by its own cell, or by one that wants to harm it
            return not self.plan.is_stub(exercise_id)
        return not verdict.misconception or self.plan.reached_into(exercise_id)

    def take(self, exercise_id: str, first: Graded, share: Allowance) -> Graded:
        """A second look at what is not right, without the other answers, then without the
        submission's own cells either."""
        cut = exercise_id in self.cut
        broke = {o.error for o in first.verdict.outcomes} & {"timeout", "died"} and not cut
        tried = set() if cut else {self.plan.above(exercise_id)}
        ways = dict.fromkeys(
            self.plan.alone(exercise_id, with_own)
            for with_own in ((False,) if broke else (True, False))
        )
        left = [steps for steps in ways if steps not in tried]
        best = first
        for n, steps in enumerate(left):
            sure = cut and best is first  # there was no first look: this is it
            # each must find its time: what is not confirmed does not count
            looks = 1 if sure else 1 + CONFIRMATIONS
            # else the first verdict stands unless this one is right
            whole = cut or first.verdict.status == "failed"
            look = share.share((len(left) - n) * looks, share.forks)
            second = self._alone(exercise_id, steps, look, whole)
            if (
                second is not None
                and second.verdict.right
                and (sure or self._stays_right(exercise_id, steps, share))
            ):
                return replace(second, alone=True)
            if second is not None and best is first and (cut or _tells_more(second, first)):
                best = second
        return best

    def _stays_right(self, exercise_id: str, steps: Sequence[Step], share: Allowance) -> bool:
        """Whether it is right whenever it is looked at: an answer that guesses must gain nothing by
        a second look, nor by being slow."""
        looks = (
            self._alone(exercise_id, steps, replace(share, forks=TRIES))
            for _ in range(CONFIRMATIONS)
        )
        return all(look is not None and look.verdict.right for look in looks)

    def _alone(
        self, exercise_id: str, steps: Sequence[Step], allowance: Allowance, whole: bool = False
    ) -> Graded | None:
        """The verdict where only these steps have run, on all cases if it is `whole`; None if they
        cannot be run in time."""
        guilty = self.replay.guilty
        own = self.plan.answers(exercise_id)
        blamed = {s: guilty.pop(s) for s in own if s in guilty}
        session = self.replay.process(steps, allowance)
        if session is None:
            guilty |= blamed
            return None
        with session:
            exercise = self.exercises[exercise_id]
            second = self.look.judge(exercise, session, allowance, whole)
        with self.replay.kept(steps, allowance, 2) as pair:
            two = partial(pair, len(steps))
            second = self.look.relayed(exercise, second, two, allowance)
        for step, why in blamed.items():
            guilty.setdefault(step, why)
        return second


def _tells_more(second: Graded, first: Graded) -> bool:
    """Whether the first look found a broken process, and the second, without the other cells, an
    ordinary answer that is not right."""
    ordinary = second.verdict.status in ("wrong", "not_yet", "missing")
    return first.verdict.status == "failed" and ordinary
