"""The check cell: finds the answer in the notebook, has it judged, and says the verdict in a few
lines."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from twophase.lab import record
from twophase.lab.library import used
from twophase.lab.shown import CheckFailed, LabError, Later, NotRight, Points
from twophase.lab.usual_dtype import Sides
from twophase.protocol.errors import error_from

if TYPE_CHECKING:
    from twophase.checks.exercise import Exercise
    from twophase.checks.judge import Bench, Verdict
    from twophase.checks.manifest import HeldBack

SEED = 0  # the same cases on every run, so that a failing one stays in view until it passes
touched: list[str] = []  # the exercises checked in this process, latest last


def exercise_of(exercise_id: str) -> Exercise | HeldBack:
    """The exercise of this id, or what is known of one whose check is not here. Raises LabError
    with the nearest known one."""
    if not isinstance(exercise_id, str) or not exercise_id:
        raise LabError('Give the exercise\'s id in quotes, as in check("kv_cache-max_batch").')
    try:
        from twophase.checks import registry

        return registry.held_back(exercise_id) or registry.load(exercise_id)
    except ValueError as e:
        raise LabError(str(e)) from None


def user_namespace() -> dict[str, Any]:
    """The names that the notebook defines. Raises LabError where there is no notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None:
        raise LabError(
            "check() looks for your answer in a notebook, and there is none here: open one with"
            " `make lab`, or score a saved one with `twophase check my/03_kv_cache.ipynb`."
        )
    return shell.user_ns  # type: ignore[no-any-return]


def check_answer(exercise_id: str) -> Points | Later:
    """The points of a right answer. Raises CheckFailed for any other.

    Of an exercise that is held back it only says so, whatever the answer: nobody has failed where
    nothing was judged.
    """
    from IPython.display import display

    from twophase.checks.exercise import Exercise
    from twophase.checks.limit import LimitedAnswer
    from twophase.lab.folded import help_of

    exercise = exercise_of(exercise_id)
    names = user_namespace()
    touched.append(exercise.id)
    if not isinstance(exercise, Exercise):
        return later(exercise, names)
    sides = Sides()
    # a warning from the answer is shown, and is no error
    with contextlib.redirect_stderr(sys.stdout), sides.across():
        verdict = bench_of(exercise).judge(LimitedAnswer(names, sides.across))
    if verdict.right:
        flags = used([names[e] for e in exercise.entries if e in names])
        for name in flags:
            print(
                f"uses {name}: fine for practice, but where it is graded officially there is"
                " nothing of the course's library"
            )
        record.write("check", exercise.id, status="right", points=verdict.points, uses=flags)
        return Points(verdict.points, verdict.out_of)
    attempted = verdict.status not in ("not_yet", "missing")
    if attempted:
        record.write(
            "check", exercise.id, status=verdict.status, misconception=verdict.misconception
        )
    card = NotRight(
        exercise.id,
        lines_of(exercise, verdict),
        _to_run(verdict) if attempted else "",
        help_of(exercise, attempted),
    )
    display(card)
    raise CheckFailed(card.plain())


def bench_of(exercise: Exercise) -> Bench:
    """The exercise's bench. Raises LabError if the check's own answer fails, which it does where a
    cell has changed what everybody computes with."""
    from twophase.checks.judge import Bench

    try:
        return Bench(exercise, SEED)
    except Exception as e:
        raise LabError(
            f"{exercise.id} was not judged: in this kernel the check's own answer fails"
            f" ({error_from(e).message[:200]}). A cell has changed what torch, numpy or Python"
            " do everywhere (as torch.set_default_device does): take that out, restart the kernel"
            " and run all cells."
        ) from None


def later(exercise: HeldBack, names: dict[str, Any]) -> Later:
    """What a check cell shows of an exercise that is judged after handing in."""
    missing = [e for e in exercise.entries if e not in names]
    written = not missing and not any(_is_stub(names[e]) for e in exercise.entries)
    if written:
        record.write("check", exercise.id, status="later")
        found = "Your answer is there."
    elif missing:
        found = f"There is no {missing[0]} yet: run the cell with your answer."
    else:
        found = "It is not written yet."
    print(
        f"{exercise.id}: {found} Its check is not in this release: it is judged after you hand in."
    )
    return Later(0.0, exercise.points)


def _to_run(verdict: Verdict) -> str:
    """The first failing case's call, for a cell of one's own; nothing if it is not shown."""
    return next((o.inputs for o in verdict.outcomes if not o.right and o.inputs), "")


def _is_stub(answer: Any) -> bool:
    """Whether a function, or a method of a class, still raises NotYet. It is not called for
    that."""
    members = list(vars(answer).values()) if isinstance(answer, type) else [answer]
    return any(
        "NotYet" in code.co_names
        for m in members
        if (code := getattr(m, "__code__", None)) is not None
    )


def lines_of(exercise: Exercise, verdict: Verdict) -> list[str]:
    """What to tell somebody whose answer is not right: which exercise, what is wrong, what to do
    next."""
    if verdict.status == "not_yet":
        return [
            f"{exercise.id}: not written yet.",
            "Replace the line with NotYet by your answer and run its cell, then this one.",
        ]
    if verdict.status == "missing":
        return [f"{exercise.id}: nothing to check yet.", f"{verdict.message}, then this one."]
    return [
        f"{exercise.id}: not right yet.",
        verdict.message,
        "Change your answer, run its cell, then this one.",
    ]
