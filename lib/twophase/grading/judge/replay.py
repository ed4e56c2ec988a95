"""Processes in which a submission's cells have run, and the cells that were found guilty of
breaking one on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from twophase.grading.judge.time_budget import Allowance
from twophase.grading.judge.which_cells_run import Step
from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.session import CellRun, Session
from twophase.grading.sandbox.zygote_handle import Zygote
from twophase.protocol import AnswerError


class Replay:
    """Runs the steps of one submission, as often as a fresh process is needed.

    `guilty` are the steps that broke their process, and how: they are left out. `ran` is what each
    step gave when it first ran, `trouble` the kinds of trouble met, `forks` the processes so far.
    `worth`: the points of the exercises.
    """

    def __init__(
        self, zygote: Zygote, limits: Limits, worth: Mapping[str, float], more: bool = False
    ) -> None:
        self._zygote, self._limits, self._more = zygote, limits, more
        self._worth = dict(worth)
        self.guilty: dict[Step, AnswerError] = {}
        self.ran: dict[Step, CellRun] = {}
        self.trouble: set[str] = set()
        self.forks = 0
        self._stops: dict[int, Step] = {}  # the part at which a cell stopped with an error

    def stopped(self, step: Step) -> str:
        """How a step, or a part of its cell above it, stopped or broke its process ("stopped with
        ..."); an empty string if it did not."""
        at = self._stop(step)
        if at in self.guilty:
            return f"was stopped: {self.guilty[at].message}"
        error = self.ran[at].error if at in self.ran and at.number <= step.number else ""
        return f"stopped with {error}" if error else ""

    def _stop(self, step: Step) -> Step:
        """The part of its cell, at this step or above it, that broke its process; else that which
        stopped with an error, wherever; else the step."""
        broke = (g for g in self.guilty if g.cell == step.cell and g.number <= step.number)
        return next(broke, self._stops.get(step.cell, step)) if step.cell else step

    def called(self) -> dict[str, int]:
        """The number of the last step that called the check of each exercise."""
        order = sorted(self.ran, key=lambda step: step.number)
        return {i: step.number for step in order for i in self.ran[step].checked}

    @contextmanager
    def kept(
        self, steps: Sequence[Step], allowance: Allowance, many: int = 1
    ) -> Iterator[Callable[[int], Sequence[Session]]]:
        """A way to `many` live processes side by side in which the innocent ones of the first so
        many steps have run, never fewer than the time before: the same ones, until one breaks. None
        at all if time is up."""
        current: list[Session] = []
        done = 0

        def live(n: int) -> Sequence[Session]:
            nonlocal done
            if not current or not all(self._go_on(s, steps[done:n], allowance) for s in current):
                end()
                while len(current) < many:
                    session = self.process(steps[:n], allowance, beside=bool(current))
                    if session is None:
                        end()
                        break
                    current.append(session)
            done = n
            return current

        def end() -> None:
            while current:
                current.pop().close()

        try:
            yield live
        finally:
            end()

    def _go_on(self, session: Session, steps: Sequence[Step], allowance: Allowance) -> bool:
        """Run these steps, too, in a process in which others have run. False if it is, or gets,
        broken, or if time is up."""
        if session.broken is not None or (steps and allowance.left_s <= 0):
            return False
        try:
            self._run(session, steps, allowance)
        except AnswerError as e:
            self.trouble.add(e.kind)
            return False
        return True

    def process(
        self, steps: Sequence[Step], allowance: Allowance, beside: bool = False
    ) -> Session | None:
        """A process in which the innocent steps have run, in place of the last one or `beside` it;
        cells that break it are found guilty on the way. None if time is up."""
        while allowance.forks > 0 and allowance.left_s > 0:
            allowance.forks -= 1
            self.forks += 1
            session = self._zygote.fork(self._limits, beside, self._more)
            session.worth = self._worth
            try:
                self._run(session, steps, allowance)
                return session
            except AnswerError as e:
                session.close()
                self.trouble.add(e.kind)
            except BaseException:
                session.close()
                raise
        return None

    def _run(self, session: Session, steps: Sequence[Step], allowance: Allowance) -> None:
        """Run the innocent steps and keep what they gave, but for what stands below the place where
        a cell stopped. Raises AnswerError if one broke the process; then it is guilty.

        But not if it had less time than a cell may take, because others had used it up.
        """
        for step in (s for s in steps if s not in self.guilty):
            if step.number > self._stop(step).number:
                continue
            if not allowance.left_s:  # a thousand short pieces would each be given a moment more
                raise AnswerError("timeout", "The submission's time was used up by the cells above")
            limit_s = max(0.01, min(self._limits.cell_s, allowance.left_s))
            try:
                with allowance.usage.running(session.waited.grace_s):
                    ran = session.run_cell(step.source, limit_s, step.ends)
            except AnswerError as e:
                if e.kind != "timeout" or limit_s == self._limits.cell_s:
                    self.guilty[step] = e
                raise
            self.ran.setdefault(step, ran)
            if ran.error and step.cell:
                self._stops.setdefault(step.cell, step)
