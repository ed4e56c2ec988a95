"""What must hold of a check, whoever wrote it: it accepts right answers, and rejects and names the
wrong ones.

Each function returns one sentence for the first thing that does not hold, or "".
tests/test_kill_matrix.py asks them of every exercise of the course; `twophase release` of an
instructor's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from twophase.checks.answer import LocalAnswer
from twophase.checks.exercise import Exercise
from twophase.checks.judge import Bench, _agree
from twophase.protocol import AnswerError, NotYet

SEEDS = (0, 7)  # the seed of the notebooks, and one that nobody has seen


def reference(exercise: Exercise, seed: int | str = 0) -> str:
    """The reference must survive its own cases, and be right."""
    try:
        bench = Bench(exercise, seed)
    except (Exception, SystemExit) as e:
        said = e.message if isinstance(e, AnswerError) else f"{type(e).__name__}: {e}"
        return f"the reference of {exercise.id} fails on its own cases (seed {seed}): {said}"[:500]
    if not any(case.public for case in bench.cases):
        return f"{exercise.id} has no public case, so it could never show what is wrong"
    return right(bench, exercise.namespace(exercise.reference), "its reference")


def right(bench: Bench, names: Mapping[str, Any], who: str) -> str:
    """A right answer must be accepted."""
    verdict = bench.judge(LocalAnswer(names))
    if verdict.right:
        return ""
    return f"{bench.exercise.id} rejects {who} (seed {bench.seed}): {verdict.message}"[:500]


def misconceptions(bench: Bench) -> str:
    """Each misconception must be rejected, and called by its name."""
    for wrong in bench.exercise.misconceptions:
        verdict = bench.verdict_on(wrong)
        if verdict.right:
            return (
                f"{bench.exercise.id} accepts the misconception {wrong.slug} (seed {bench.seed}):"
                " add a case it fails"
            )
        if verdict.misconception != wrong.slug:
            taken = (
                f"taken for {verdict.misconception}"
                if verdict.misconception
                else "rejected without its name"
            )
            name = f"{bench.exercise.id}: {wrong.slug}"
            return f"{name} is {taken} (seed {bench.seed}): {verdict.message}"[:500]
    return ""


def separated(bench: Bench) -> str:
    """The cases must tell every two misconceptions apart."""
    seen = {m.slug: bench.wrong_answer(m) for m in bench.exercise.misconceptions}
    for a, b in combinations(seen, 2):
        if all(_agree(x, y, bench.exercise) for x, y in zip(seen[a], seen[b], strict=True)):
            return f"{bench.exercise.id}: no case tells {a} from {b} (seed {bench.seed})"
    return ""


def stub(bench: Bench, names: Mapping[str, Any]) -> str:
    """An untouched notebook must get nothing, and be told that the answer is not written yet."""
    verdict = bench.judge(LocalAnswer(names))
    if (verdict.status, verdict.points) == ("not_yet", 0):
        return ""
    return (
        f"{bench.exercise.id}: the untouched stub should be “not written yet”, and is"
        f" {verdict.status}: {verdict.message}"
    )


def untouched(exercise: Exercise) -> dict[str, Any]:
    """The names of an untouched notebook: every entry raises NotYet."""

    def not_yet(*args: Any, **kwargs: Any) -> Any:
        raise NotYet(exercise.id)

    return dict.fromkeys(exercise.entries, not_yet)


def complete(exercise: Exercise) -> str:
    """What a person would miss: names used twice, sentences left empty."""
    slugs = [m.slug for m in exercise.misconceptions]
    if not slugs:
        return (
            f"{exercise.id} has no misconceptions: it could only say that an answer is wrong,"
            " never why"
        )
    if len(set(slugs)) < len(slugs):
        return f"{exercise.id} has two misconceptions of one name"
    if len(exercise.hints) != 3 or not all(h.strip() for h in exercise.hints):
        return f"{exercise.id} needs three hints"
    if not all(m.says.strip() for m in exercise.misconceptions):
        return f"{exercise.id} has a misconception that says nothing"
    return ""


def everything(exercise: Exercise) -> str:
    """All of the above, on two seeds."""
    if wrong := complete(exercise):
        return wrong
    for seed in SEEDS:
        if wrong := reference(exercise, seed):
            return wrong
        bench = Bench(exercise, seed)
        if wrong := misconceptions(bench) or separated(bench) or stub(bench, untouched(exercise)):
            return wrong
    return ""
