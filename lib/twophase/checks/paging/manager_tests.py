"""paging-manager_tests: write the scripts that find every broken block manager."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions
from twophase.checks.paging import _broken_managers as broken
from twophase.checks.paging._manager import METHODS, Right, script

wrong = Misconceptions()

Written = dict[str, Any]
KEYS = {"n_blocks", "block_size", "ops", "free", "copies", "refused"}
MOST_CASES, MOST_OPS = 10, 30
SAID = {str: "a name (a string)", int: "a number of tokens (an int)"}


def problem(written: Any) -> str:
    """What makes the cases no cases, in one sentence; empty if nothing does."""
    if not isinstance(written, list | tuple) or not 1 <= len(written) <= MOST_CASES:
        return "manager_tests() must return a list of 1 to 10 cases"
    return next(filter(None, map(_problem, written)), "")


def _problem(case: Any) -> str:
    if not isinstance(case, dict) or set(case) != KEYS:
        return "a case is a dict with the keys " + ", ".join(map(repr, sorted(KEYS)))
    if any(type(case[k]) is not int or case[k] < 0 for k in KEYS - {"ops"}):
        return "n_blocks, block_size, free, copies and refused are ints from 0"
    if not (1 <= case["n_blocks"] <= 50 and 1 <= case["block_size"] <= 16):
        return "a pool has 1 to 50 blocks of 1 to 16 tokens"
    ops = case["ops"]
    if not isinstance(ops, list | tuple) or not 1 <= len(ops) <= MOST_OPS:
        return "a case has 1 to 30 operations"
    return next(filter(None, map(_op_problem, ops)), "") or _order_problem(case)


def _op_problem(op: Any) -> str:
    if not isinstance(op, list | tuple) or not op or op[0] not in [*METHODS]:
        return "an operation is a list that begins with allocate, append, fork or free"
    kinds = METHODS[op[0]]
    if [type(x) for x in op[1:]] != list(kinds):
        return f"{op[0]} takes {' and '.join(SAID[kind] for kind in kinds)}"
    return "" if op[0] != "allocate" or 1 <= op[2] <= 200 else "allocate 1 to 200 tokens"


def _order_problem(case: Written) -> str:
    """Operations speak of sequences that are there, as a right manager has them."""
    manager = Right(case["n_blocks"], case["block_size"])
    for name, seq, *more in case["ops"]:
        new = more[0] if name == "fork" else seq
        if name in ("allocate", "fork") and new in manager.tables:
            return f"{name} makes a sequence {new!r} that is there already"
        if name != "allocate" and seq not in manager.tables:
            return f"{name} speaks of {seq!r}, which is not there (or was refused)"
        try:
            getattr(manager, name)(seq, *more)
        except ValueError:
            continue
    return ""


def _expectation(place: int, case: Written) -> str:
    """What a case that the right manager fails expects of it; empty if it passes."""
    seen = broken.found(Right, case)
    differ = [k for k in broken.EXPECTED if seen[k] != case[k]]
    if not differ:
        return ""
    others = (n for n, manager in broken.MANAGERS.items() if not broken.caught(manager, case))
    said = f"case {place}: a right manager does not show {differ[0]} = {case[differ[0]]}"
    name = next(others, "")
    return said + (f"; one that {name} does" if name else "")


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """Whether the right manager passes, or whether the case's broken one is caught."""
    written = plain(answer.call("manager_tests"))
    said = problem(written)
    if case.args:
        manager = broken.MANAGERS[case.args[0]]
        return {"caught": not said and any(broken.caught(manager, one) for one in written)}
    said = said or next(filter(None, map(_expectation, range(1, len(written) + 1), written)), "")
    return {"the cases": said or "can be used, and a right manager passes them"}


def cases(rng: random.Random) -> list[Case]:
    """The right manager first, then the broken ones in an order of the seed's choosing."""
    names = sorted(broken.MANAGERS)
    rng.shuffle(names)
    return [Case("a right manager"), *(Case(f"a manager that {x}", (x,)) for x in names)]


def _case(n_blocks: int, block_size: int, text: str, **other: int) -> Written:
    """A case with what a right manager shows, or something else."""
    ops = [list(op) for op in script(text)]
    case = {"n_blocks": n_blocks, "block_size": block_size, "ops": ops}
    seen = broken.found(Right, case)
    return case | {k: seen[k] for k in broken.EXPECTED} | other


FULL = _case(3, 2, "a4 b3 b1 +b +b +a -a +b -b c6")
SHARED = _case(6, 4, "a6 a>b a>c +a +b +c +c d4 -a -b -c e20")
COPY_REFUSED = _case(2, 2, "a3 a>b +b +a -a +b")
FIRST_COPIES = _case(6, 4, "a6 a>b +a")


def reference() -> list[Written]:
    """The right answer (one of many)."""
    return [FULL, SHARED, COPY_REFUSED, FIRST_COPIES]


@wrong(
    "tests of one sequence after the other",
    "None of your sequences is ever forked: counts and copies are not tried.",
)
def never_forked() -> list[Written]:
    return [FULL, _case(4, 4, "a8 +a -a b16")]


@wrong(
    "plausible",
    "Nothing is ever refused in your cases: a full pool is where managers go wrong.",
)
def never_refused() -> list[Written]:
    return [_case(12, 4, "a6 a>b a>c +a +b +c +c d4 -a -b -c e20"), _case(9, 2, "a4 b3 +b +b -a")]


@wrong(
    "plausible",
    "You never free a sequence: whether blocks come back, and whose, does not show.",
)
def never_freed() -> list[Written]:
    return [_case(6, 4, "a6 a>b a>c +a +b +c +c d4 e1"), _case(2, 2, "a3 a>b +b +a")]


@wrong(
    "plausible",
    "You fork only where the last block is full: then nothing is ever copied.",
)
def forked_at_the_end_of_a_block() -> list[Written]:
    return [FULL, _case(9, 2, "a4 a>b +a +b a>c b>d -a -b -c -d e18")]


@wrong(
    "plausible",
    "You expect a fork to take blocks of its own: it names the parent's.",
)
def expects_blocks_for_a_fork() -> list[Written]:
    return [FULL, {**SHARED, "ops": SHARED["ops"][:2], "free": 2, "copies": 0, "refused": 0}]


@wrong(
    "“you copy and reduce the reference count”, half of it",
    "You expect a copied block to be lost for ever: when its other readers have gone, it is free.",
)
def expects_a_lost_block() -> list[Written]:
    return [SHARED, COPY_REFUSED, _case(6, 4, "a2 a>b +b +a -a -b", free=5, copies=2)]


@wrong(
    "plausible",
    "You expect every sequence to copy a block that was once shared: the last reader writes to it"
    " in place.",
)
def expects_a_copy_for_each() -> list[Written]:
    return [FULL, COPY_REFUSED, _case(6, 4, "a2 a>b +b +a", free=4, copies=2)]


EXERCISE = Exercise(
    id="paging-manager_tests",
    title="Find every broken block manager",
    kind="test",
    points=5,
    minutes=12,
    entries=("manager_tests",),
    cases=cases,
    observe=observe,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "Fill a pool to its last block, ask for more, free something, and fill it again: that"
            " finds whoever miscounts."
        ),
        (
            "Fork a sequence twice within a block, let all three write, free all, and take the"
            " whole pool. Count the copies: the last reader makes none."
        ),
        (
            "A full pool whose last block is shared: a write to it must be refused, and when the"
            " other reader has gone it must not be."
        ),
    ),
    recall=(
        "Three sequences share a block and each writes to it. How many copies are made?",
        "Two: the last one writes in place, since nobody else reads it by then.",
    ),
)
