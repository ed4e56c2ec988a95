"""One look at one exercise: its answer is asked in a process in which the submission's cells have
run. What is not right may deserve another one: see second_look."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from twophase.checks.answer import Relay
from twophase.checks.exercise import Exercise
from twophase.checks.judge import Outcome, Status, Verdict
from twophase.grading.judge.benches import Benches
from twophase.grading.judge.remote_answer import RemoteAnswer
from twophase.grading.judge.replay import Replay
from twophase.grading.judge.time_budget import Allowance, Usage
from twophase.grading.judge.what_is_not_there import explained
from twophase.grading.judge.which_cells_run import ExecutionPlan
from twophase.grading.results.grade import BROKEN, Graded
from twophase.grading.sandbox.session import CellRun, Session

TIME_IS_UP = "The notebook used up its time before this was judged."
APART = (
    "Right as long as one process does it all, and wrong when what it returned is handed to another"
    " one: what it needs later must be in what it returns."
)
LONGEST_OUTPUT = 20_000  # characters


class Look:
    """Judges the exercises of one submission, whose processes `replay` has, on the cases of `seed`.
    `trouble` are the kinds of trouble that were met."""

    def __init__(
        self, plan: ExecutionPlan, replay: Replay, benches: Benches, seed: int | str, usage: Usage
    ) -> None:
        self._plan, self._replay, self._usage = plan, replay, usage
        self._benches, self._seed = benches, seed
        self.trouble: set[str] = set()

    def judge(
        self, exercise: Exercise, session: Session | None, allowance: Allowance, whole: bool = True
    ) -> Graded:
        """The verdict on an exercise whose cells have run in `session`; `whole` as the bench has
        it."""
        own = self._plan.answers(exercise.id)
        ran = _joined([self._replay.ran[s] for s in own if s in self._replay.ran])
        for fault in [self._replay.guilty[s] for s in own if s in self._replay.guilty]:
            return Graded(verdict_of(exercise, "failed", fault.message, fault.kind), ran)
        if session is None:
            return Graded(verdict_of(exercise, "failed", TIME_IS_UP, "timeout"))
        verdict = self._ask(exercise, [session], allowance, whole)
        stopped = self._replay.stopped
        if verdict.status == "missing" and (why := next(filter(None, map(stopped, own)), "")):
            verdict = replace(verdict, message=f"Its cell {why}")
        return Graded(explained(verdict, ran, self._plan, stopped), ran)

    def _ask(
        self, exercise: Exercise, sessions: Sequence[Session], allowance: Allowance, whole: bool
    ) -> Verdict:
        """The bench's verdict on an answer in one process, or in two that are asked in turn. What
        the bench takes for itself (cases, right and wrong answers) is nobody's time."""
        bench = self._benches.of(exercise, self._seed)
        until, several = time.monotonic() + allowance.left_s, len(sessions) > 1
        answers = [RemoteAnswer(session, until, handed=several) for session in sessions]
        verdict = bench.judge(Relay(*answers) if several else answers[0], whole)
        self._usage.add(answers[0].elapsed_s, max(a.waited_s for a in answers))
        # in the middle of the check's code: whatever it keeps is made again
        if any(a.interrupted for a in answers):
            self._benches.forget(exercise, self._seed)
        self.trouble |= {o.error for o in verdict.outcomes} & set(BROKEN)
        return verdict

    def relayed(
        self,
        exercise: Exercise,
        first: Graded,
        pair: Callable[[], Sequence[Session]],
        allowance: Allowance,
    ) -> Graded:
        """`first`; if that is right and the exercise wants it, what a `pair` of other processes
        gives, asked in turn."""
        if not (first.verdict.right and exercise.relayed):
            return first
        if not (sessions := pair()):
            self.trouble.add("timeout")
            return replace(first, verdict=verdict_of(exercise, "failed", TIME_IS_UP, "timeout"))
        verdict = self._ask(exercise, sessions, allowance, whole=False)
        if not verdict.right:
            verdict = replace(verdict, message=APART)
        return replace(first, verdict=verdict)


def _joined(runs: Sequence[CellRun]) -> CellRun:
    """What running an answer's cells gave: their output one after the other, the first error."""
    broke = next((r for r in runs if r.error), CellRun())
    return replace(broke, output="".join(r.output for r in runs)[:LONGEST_OUTPUT])


def verdict_of(exercise: Exercise, status: Status, message: str, kind: str = "") -> Verdict:
    """A verdict without points, of an answer that could not be asked."""
    outcomes = (Outcome("running the cell", True, False, message, kind),) if kind else ()
    return Verdict(exercise.id, status, 0.0, exercise.points, message, None, outcomes)
