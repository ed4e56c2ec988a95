"""The judge of one submission: runs its cells in another process, judges every exercise, and blames
what broke.

When the process dies, hangs or talks nonsense, the cell or the exercise at fault loses; a fresh
process replays the other cells and the rest is judged there. An exercise that fails beside the
others is tried once more by itself, so that no cell can take away another one's points. Half of the
submission's time is for all exercises together; the other half is divided among those that are
tried again, so that none can take away another one's time either.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from twophase.checks.answer import Relay
from twophase.checks.exercise import Exercise
from twophase.checks.judge import Outcome, Status, Verdict
from twophase.grading.files.notebook import Notebook
from twophase.grading.judge.benches import Benches
from twophase.grading.judge.execution_plan import NOWHERE, ExecutionPlan, Step, make_plan
from twophase.grading.judge.remote_answer import RemoteAnswer
from twophase.grading.judge.replay import Replay
from twophase.grading.judge.time_budget import Allowance, Usage
from twophase.grading.release.release import Release
from twophase.grading.results.grade import Flag, Grade, Graded
from twophase.grading.sandbox.confinement import Limits
from twophase.grading.sandbox.session import CellRun, Session
from twophase.grading.sandbox.zygote_handle import Zygote

TIME_IS_UP = "The notebook used up its time before this was judged."
APART = (
    "Right as long as one process does it all, and wrong when what it returned is handed to another"
    " one: what it needs later must be in what it returns."
)
TROUBLE = ("timeout", "died", "protocol")
TRIES = 3  # processes for an exercise by itself: two cells may turn out to break it
LONGEST_OUTPUT = 20_000  # characters
CONFIRMATIONS = 3  # more processes in which an answer must be right that was not at the first look


@dataclass(frozen=True)
class Supervisor:
    """Grades submissions of one release, one at a time, in processes forked from `zygote`, on the
    cases of `seed`."""

    zygote: Zygote
    release: Release
    benches: Benches
    limits: Limits
    seed: int | str

    def grade(self, notebook: Notebook) -> Grade:
        """The grade of one submission. Raises GraderFault, and nothing for what the submission
        does."""
        return _Run(self, notebook).grade()


class _Run:
    """One submission on its way through the supervisor."""

    def __init__(self, its: Supervisor, notebook: Notebook) -> None:
        self._release, self._benches, self._seed = its.release, its.benches, its.seed
        limits = its.limits
        self._plan: ExecutionPlan = make_plan(notebook, its.release)
        more = self._plan.loads_more()
        self._replay = Replay(its.zygote, its.release.withholds, limits, more)
        self._usage = Usage(limits.waiting_s)
        self._whole = Allowance(self._usage, limits.submission_s, limits.forks)
        self._together = Allowance(self._usage, limits.submission_s / 2, limits.forks)
        self._cut: set[str] = set()  # exercises for which the time of all together did not last
        self._grade = Grade(flags=list(self._plan.flags))

    def grade(self) -> Grade:
        with self._replay.kept(self._plan.steps, self._together) as live:
            seen = {i: self._first(i, live) for i in self._plan.order()}
        for i, first in seen.items():  # once the process of all together has ended
            exercise, above = self._release.exercises[i], self._plan.above(i)
            relayed = self._relayed(exercise, first, above, self._together)
            seen[i] = first if relayed is first else self._noted(relayed)
        found = {i: seen[i] for i in self._release.exercises}
        again = [i for i, first in found.items() if self._deserves_another_look(first)]
        for n, exercise_id in enumerate(again):
            share = self._whole.share(len(again) - n, TRIES)
            found[exercise_id] = self._again(exercise_id, found[exercise_id], share)
        for exercise_id, graded in found.items():
            self._grade.questions.append(graded)
            self._flag(exercise_id, graded)
        for step in self._plan.steps:
            if step.role in ("given", "own") and step in self._replay.guilty:
                why = str(self._replay.guilty[step])
                self._grade.flags.append(Flag("cell_broke", f"cell {step.number + 1}", why))
        self._grade.trouble |= self._replay.trouble
        self._grade.forks = self._replay.forks
        return self._grade

    def _first(self, exercise_id: str, live: Callable[[int], Session | None]) -> Graded:
        exercise = self._release.exercises[exercise_id]
        if exercise_id in self._plan.missing:
            return Graded(_verdict(exercise, "missing", NOWHERE))
        session = live(self._plan.asked[exercise_id])
        return self._noted(self._judge(exercise, session, self._together))

    def _noted(self, graded: Graded) -> Graded:
        """`graded`; if the time of all together did not last for it, that is noted."""
        if graded.verdict.status == "failed" and not self._together.left_s:
            self._cut.add(graded.verdict.exercise_id)
        return graded

    def _judge(
        self,
        exercise: Exercise,
        session: Session | None,
        allowance: Allowance,
        whole: bool = True,
    ) -> Graded:
        """The verdict on an exercise whose cells have run in `session`; `whole` as the bench has
        it."""
        own = self._plan.answers(exercise.id)
        ran = _together([self._replay.ran[s] for s in own if s in self._replay.ran])
        for fault in [self._replay.guilty[s] for s in own if s in self._replay.guilty]:
            return Graded(_verdict(exercise, "failed", fault.message, fault.kind), ran)
        if session is None:
            return Graded(_verdict(exercise, "failed", TIME_IS_UP, "timeout"))
        verdict = self._ask(exercise, session, allowance, whole)
        self._grade.trouble |= {o.error for o in verdict.outcomes} & set(TROUBLE)
        if verdict.status == "missing" and ran.error:
            verdict = replace(verdict, message=f"Its cell stopped with {ran.error}")
        return Graded(verdict, ran)

    def _ask(
        self, exercise: Exercise, session: Session, allowance: Allowance, whole: bool
    ) -> Verdict:
        """The bench's verdict. What the bench takes for itself (cases, right and wrong answers) is
        nobody's time."""
        bench = self._benches.of(exercise, self._seed)
        answer = RemoteAnswer(session, time.monotonic() + allowance.left_s)
        verdict = bench.judge(answer, whole)
        self._usage.add(answer.elapsed_s, answer.waited_s)
        if answer.interrupted:  # in the middle of the check's code: whatever it keeps is made again
            self._benches.forget(exercise, self._seed)
        return verdict

    def _relayed(
        self, exercise: Exercise, first: Graded, steps: Sequence[Step], allowance: Allowance
    ) -> Graded:
        """`first`; if that is right, what two fresh processes give where the exercise wants it."""
        if not (first.verdict.right and exercise.relayed):
            return first
        verdict = self._relay(exercise, steps, allowance)
        self._grade.trouble |= {o.error for o in verdict.outcomes} & set(TROUBLE)
        return replace(first, verdict=verdict)

    def _relay(self, exercise: Exercise, steps: Sequence[Step], allowance: Allowance) -> Verdict:
        """The verdict on an answer that was right, asked in two processes in turn."""
        with contextlib.ExitStack() as processes:
            sessions = []
            for beside in (False, True):
                session = self._replay.process(steps, allowance, beside)
                if session is None:
                    return _verdict(exercise, "failed", TIME_IS_UP, "timeout")
                sessions.append(processes.enter_context(session))
            bench = self._benches.of(exercise, self._seed)
            until = time.monotonic() + allowance.left_s
            answers = [RemoteAnswer(session, until) for session in sessions]
            verdict = bench.judge(Relay(*answers), whole=False)
            self._usage.add(answers[0].elapsed_s, max(a.waited_s for a in answers))
            if any(a.interrupted for a in answers):
                self._benches.forget(exercise, self._seed)
            return verdict if verdict.right else replace(verdict, message=APART)

    def _deserves_another_look(self, first: Graded) -> bool:
        """Whether it is not right, and another cell may be to blame."""
        verdict = first.verdict
        if verdict.right or not self._plan.answers(verdict.exercise_id):
            return False
        if verdict.status in ("wrong", "missing") and not self._plan.may_suffer(
            verdict.exercise_id
        ):
            return False
        if verdict.status == "not_yet":  # said by its own cell, or by one that wants to harm it
            return not self._plan.is_stub(verdict.exercise_id)
        return not verdict.misconception or self._plan.reached_into(verdict.exercise_id)

    def _again(self, exercise_id: str, first: Graded, share: Allowance) -> Graded:
        """A second look at what is not right, without the other answers, then without the
        submission's own cells either."""
        cut = exercise_id in self._cut
        broke = {o.error for o in first.verdict.outcomes} & {"timeout", "died"} and not cut
        tried = set() if cut else {self._plan.above(exercise_id)}
        ways = dict.fromkeys(
            self._plan.alone(exercise_id, with_own)
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
        guilty = self._replay.guilty
        own = self._plan.answers(exercise_id)
        blamed = {s: guilty.pop(s) for s in own if s in guilty}
        session = self._replay.process(steps, allowance)
        if session is None:
            guilty |= blamed
            return None
        with session:
            exercise = self._release.exercises[exercise_id]
            second = self._judge(exercise, session, allowance, whole)
        second = self._relayed(exercise, second, steps, allowance)
        for step, why in blamed.items():
            guilty.setdefault(step, why)
        return second

    def _flag(self, exercise_id: str, graded: Graded) -> None:
        entries = self._release.exercises[exercise_id].entries
        found = {}
        if graded.alone:
            found["right_alone"] = (
                "It is right by itself, and another cell of the notebook breaks it: judged by"
                " itself."
            )
        elif not graded.verdict.right and (again := self._plan.overwrites(exercise_id, entries)):
            found["defined_again"] = (
                f"Cell {again[-1].number + 1} defines it again, and no check stands between: that"
                " one was asked. Give it another name."
            )
        withheld = [o for o in graded.verdict.outcomes if "Withheld" in o.message]
        if withheld or "Withheld" in graded.cell.types:
            found["uses_withheld"] = (
                "It calls for a library function that is the answer, or for the checks: neither is"
                " there."
            )
        self._grade.flags += [Flag(name, exercise_id, says) for name, says in found.items()]


def _together(runs: Sequence[CellRun]) -> CellRun:
    """What running an answer's cells gave: their output one after the other, the first error."""
    broke = next((r for r in runs if r.error), CellRun())
    return replace(broke, output="".join(r.output for r in runs)[:LONGEST_OUTPUT])


def _tells_more(second: Graded, first: Graded) -> bool:
    """Whether the first look found a broken process, and the second, without the other cells, an
    ordinary answer that is not right."""
    return first.verdict.status == "failed" and second.verdict.status in (
        "wrong",
        "not_yet",
        "missing",
    )


def _verdict(exercise: Exercise, status: Status, message: str, kind: str = "") -> Verdict:
    outcomes = (Outcome("running the cell", True, False, message, kind),) if kind else ()
    return Verdict(exercise.id, status, 0.0, exercise.points, message, None, outcomes)
