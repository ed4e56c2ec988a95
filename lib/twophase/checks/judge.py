"""The judge: runs an answer through an exercise's cases, compares, and names what went wrong.

The same code serves the check cell in the notebook, pytest, nbgrader and the official grader. Only
the `Answer` differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from twophase.checks.answer import Answer, AskedOnce, LocalAnswer, Timed, Twins
from twophase.checks.calls import Calls
from twophase.checks.compare import difference
from twophase.checks.exercise import Case, Exercise, Misconception
from twophase.checks.key_order import in_other_order
from twophase.checks.modest import modest
from twophase.protocol import AnswerError
from twophase.protocol.errors import JudgeFault, error_from

Status = Literal["right", "wrong", "not_yet", "missing", "failed"]
FATAL = (
    "not_yet",
    "missing",
    "timeout",
    "died",
    "protocol",
)  # no other case can go better after one of these

# instead of the answer's own words, which could tell what a case that is not shown asks
UNSEEN = {
    "not_yet": "In a case that is not shown it says that it is not written yet.",
    "missing": "In a case that is not shown a name was missing that was there before.",
    "protocol": "In a case that is not shown its process sent nonsense.",
}
LONGEST_MESSAGE = 800  # characters; an answer's own keys and strings may be megabytes
PATIENCE = 3  # all cases of an exercise together may take this many times the limit of one


@dataclass(frozen=True)
class Outcome:
    """One case: right, or one sentence that says what is wrong."""

    case: str
    public: bool
    right: bool
    message: str = ""
    error: str = ""  # the AnswerError's kind, if there was nothing to compare
    inputs: str = ""  # what the answer was asked, as Python, if it may be shown


@dataclass(frozen=True)
class Verdict:
    """What the judge says of one answer."""

    exercise_id: str
    status: Status
    points: float
    out_of: float
    message: str
    misconception: str | None = None
    outcomes: tuple[Outcome, ...] = ()

    @property
    def right(self) -> bool:
        return self.status == "right"


# slips of the keyboard: they say nothing of what somebody thought
SLIPS = {"NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", "SyntaxError"}
Seen = Any  # what `Exercise.look` returned, or the AnswerError that it raised
# agrees with no misconception
TOO_LARGE = AnswerError("unusable", "more than anybody asked for", ("TooLarge",))


def _look(exercise: Exercise, answer: Answer, case: Case) -> Seen:
    try:
        return exercise.look(answer, case)
    except AnswerError as e:
        return e
    except JudgeFault:
        raise
    except Exception as e:
        # `observe` works for the right answer, so it is this answer's data that it trips over
        return _unusable(e)


def _unusable(error: Exception) -> AnswerError:
    said = error_from(error).message[:200]
    return AnswerError(
        "unusable", f"the check can do nothing with what your answer returned ({said})"
    )


def _agree(seen: Seen, other: Seen, exercise: Exercise) -> bool:
    """Whether two answers behave alike on a case: the same error, if it is no slip, or values
    within the exercise's tolerance."""
    if isinstance(seen, AnswerError) or isinstance(other, AnswerError):
        both = isinstance(seen, AnswerError) and isinstance(other, AnswerError)
        alike = both and (seen.kind, seen.type_names[:1]) == (other.kind, other.type_names[:1])
        return alike and not SLIPS.intersection(seen.type_names[:1])
    try:
        return difference(seen, other, exercise.compare) is None
    except Exception:  # as in a verdict: data that nothing can be done with
        return False


class Bench:
    """An exercise with the cases of one seed and what the right answer and the wrong ones show on
    them, each computed once.

    With `public_only` its cases are those that a learner may see. Raises ValueError if that leaves
    none: whatever was judged by them would be right.
    """

    def __init__(self, exercise: Exercise, seed: int | str = 0, public_only: bool = False) -> None:
        self.exercise = exercise
        self.seed = seed
        self.cases = [c for c in exercise.make_cases(seed) if c.public or not public_only]
        if not self.cases:
            raise ValueError(
                f"{exercise.id} has no {'public ' * public_only}case; give it one that may be shown"
            )
        self.expected = [
            exercise.look(LocalAnswer(exercise.namespace(exercise.reference)), c)
            for c in self.cases
        ]
        self._wrong: dict[str, tuple[LocalAnswer, list[Seen]]] = {}

    def wrong_answer(self, misconception: Misconception) -> list[Seen]:
        """What this misconception shows on every case."""
        return [self._wrong_at(misconception, i) for i in range(len(self.cases))]

    def _wrong_at(self, misconception: Misconception, i: int) -> Seen:
        """What this misconception shows on case i. It meets the cases in their order, and those
        that nobody asks for not at all."""
        if misconception.slug not in self._wrong:
            names = self.exercise.namespace(misconception.answer)
            self._wrong[misconception.slug] = LocalAnswer(names), []
        answer, shown = self._wrong[misconception.slug]
        for case in self.cases[len(shown) : i + 1]:
            shown.append(_look(self.exercise, answer, case))
        return shown[i]

    def verdict_on(self, misconception: Misconception) -> Verdict:
        """What `judge` says of this misconception, from what it shows on every case."""
        seen = self.wrong_answer(misconception)
        together = zip(self.cases, seen, self.expected, strict=True)
        outcomes = [self._outcome(case, found, expected) for case, found, expected in together]
        if all(outcome.right for outcome in outcomes):
            self._again(self._wrong[misconception.slug][0], None, outcomes)
        return self._verdict(seen, tuple(outcomes))

    def judge(self, answer: Answer, whole: bool = True) -> Verdict:
        """The verdict on `answer`. Never raises for what the answer does.

        Without `whole` it says no more than whether the answer is right: the first case that is not
        ends it.
        """
        seen: list[Seen] = []
        outcomes: list[Outcome] = []
        timed = answer if isinstance(answer, Timed) else None
        if timed is not None:
            timed.start_exercise(PATIENCE * self.exercise.time_limit_s)
        once = AskedOnce(answer)
        for case, expected in zip(self.cases, self.expected, strict=True):
            found, outcome = self._try(once, timed, case, expected)
            seen.append(found if outcome.right or modest(found) else TOO_LARGE)
            outcomes.append(outcome)
            if outcome.error in FATAL or not (whole or outcome.right):
                break
        if all(outcome.right for outcome in outcomes):
            self._again(answer, timed, outcomes)
        return self._verdict(seen if whole else [], tuple(outcomes))

    def _again(self, answer: Answer, timed: Timed | None, outcomes: list[Outcome]) -> None:
        """Ask the last case and the first once more, of an answer that was right, with the keys of
        their dicts the other way round: it must not have kept anything, nor count on an order. Its
        objects now come in pairs."""
        for i in dict.fromkeys((len(self.cases) - 1, 0)):
            case, expected = self.cases[i], self.expected[i]
            other = in_other_order(case)
            _, outcome = self._try(Twins(answer), timed, other, expected)
            if outcome.right:
                continue
            how = "once more"
            if other is not case:
                _, plain = self._try(Twins(answer), timed, case, expected)
                how = "with the keys of a dict in another order" if plain.right else how
                outcome = outcome if plain.right else plain
            said = f"right at first, and wrong when asked {how}: {outcome.message}"
            outcomes[i] = replace(outcome, message=said[:LONGEST_MESSAGE])
            break

    def _try(
        self, answer: Answer, timed: Timed | None, case: Case, expected: Any
    ) -> tuple[Seen, Outcome]:
        """What a case shows, and whether it is right. Both count against the case's limit, if the
        answer has a clock."""
        calls = Calls(answer)

        def check() -> tuple[Seen, Outcome]:
            found = _look(self.exercise, calls if case.public else answer, case)
            return found, self._outcome(case, found, expected)

        found, outcome = self._timed(timed, check, case, expected)
        if case.public and not outcome.right:
            outcome = replace(outcome, inputs=calls.text())
        return found, outcome

    def _timed(
        self,
        timed: Timed | None,
        check: Callable[[], tuple[Seen, Outcome]],
        case: Case,
        expected: Any,
    ) -> tuple[Seen, Outcome]:
        if timed is None:
            return check()
        timed.start_case(self.exercise.time_limit_s)
        try:
            return timed.within(check)
        except AnswerError as e:
            return e, self._outcome(case, e, expected)

    def _outcome(self, case: Case, found: Seen, expected: Any) -> Outcome:
        if isinstance(found, AnswerError):
            return Outcome(
                case.name, case.public, False, found.message[:LONGEST_MESSAGE], found.kind
            )
        try:
            message = difference(found, expected, self.exercise.compare)
        except Exception as e:  # it works for the right answer
            return Outcome(case.name, case.public, False, _unusable(e).message, "unusable")
        return Outcome(case.name, case.public, message is None, (message or "")[:LONGEST_MESSAGE])

    def _verdict(self, seen: list[Seen], outcomes: tuple[Outcome, ...]) -> Verdict:
        exercise = self.exercise
        failed = [o for o in outcomes if not o.right]
        if not failed:
            return Verdict(
                exercise.id, "right", exercise.points, exercise.points, "Right.", None, outcomes
            )
        kinds = {o.error for o in failed}
        status: Status = (
            "not_yet" if "not_yet" in kinds else "missing" if "missing" in kinds else "wrong"
        )
        if kinds & {"timeout", "died", "protocol"}:
            status = "failed"
        named = self._name(seen) if status == "wrong" else None
        message = named.says if named else self._show(failed)
        return Verdict(
            exercise.id,
            status,
            0.0,
            exercise.points,
            message,
            named.slug if named else None,
            outcomes,
        )

    def _name(self, seen: list[Seen]) -> Misconception | None:
        """The one misconception that agrees with the answer on every case, if there is exactly
        one. Nothing names an answer that raises on every case: whatever does looks like it."""
        if all(isinstance(s, AnswerError) for s in seen):
            return None
        agreeing = [
            m
            for m in self.exercise.misconceptions
            if len(seen) == len(self.cases)
            and all(_agree(s, self._wrong_at(m, i), self.exercise) for i, s in enumerate(seen))
        ]
        return agreeing[0] if len(agreeing) == 1 else None

    def _show(self, failed: list[Outcome]) -> str:
        """The smallest public case that fails (cases are listed smallest first)."""
        shown = next((o for o in failed if o.public or o.error in FATAL), None)
        if shown is None:
            return "A case that is not shown fails: try your answer on larger and odder inputs."
        if not shown.public:
            return UNSEEN.get(shown.error) or f"In a case that is not shown: {shown.message}"
        if shown.error in FATAL and shown.error != "timeout":
            return shown.message
        return f"Case “{shown.case}”: {shown.message}"


def judge(exercise: Exercise, namespace: Mapping[str, Any], seed: int | str = 0) -> Verdict:
    """The verdict on the answer whose names live in `namespace`, in this process."""
    return Bench(exercise, seed).judge(LocalAnswer(namespace))
