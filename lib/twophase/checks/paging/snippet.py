"""paging-snippet: beams that go on from other beams, and blocks that were given back too soon."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.checks.paging._beams import (
    FIXED,
    N_BLOCKS,
    Input,
    Tables,
    drawn,
    problem,
    seen_of,
    state,
)

wrong = Misconceptions()

State = tuple[Tables, list[int], list[int]]


def reorder(tables: Tables, parents: list[int], count: list[int], unused: list[int]) -> State:
    """The right answer."""
    count, unused = list(count), list(unused)
    new = [list(tables[p]) for p in parents]
    for table in new:
        for block in table:
            count[block] += 1
    for table in tables:
        for block in table:
            count[block] -= 1
            if count[block] == 0:
                unused.append(block)
    return new, count, unused


def printed(tables: Tables, parents: list[int], count: list[int], unused: list[int]) -> State:
    """The printed code."""
    count, unused = list(count), list(unused)
    for table in tables:
        for block in table:
            count[block] -= 1
            if count[block] == 0:
                unused.append(block)
    new = [list(tables[p]) for p in parents]
    for table in new:
        for block in table:
            count[block] += 1
    return new, count, unused


def expose() -> list[Input]:
    """The right answer (one of many)."""
    return [{"tables": [[0, 1], [0, 2]], "parents": [0, 0], "others": []}]


def harmless() -> Input:
    """The right answer (one of many): block 0 has a reader besides the beams."""
    return {"tables": [[0], [0, 2]], "parents": [0, 0], "others": [0]}


@wrong(
    "plausible",
    "In your inputs somebody else reads every block that the beams keep: then no count falls to 0.",
    entry="expose",
)
def exposed_by_what_others_hold() -> list[Input]:
    return [{"tables": [[0], [0, 2]], "parents": [0, 0], "others": [0]}]


@wrong(
    "plausible",
    "One of your inputs is none: a table names each block once, and a parent is the number of a"
    " beam.",
    entry="expose",
)
def exposed_by_no_state() -> list[Input]:
    return [{"tables": [[0, 0], [1, 2]], "parents": [0, 2], "others": []}]


@wrong(
    "plausible",
    "In your harmless input every beam goes on: at least one must be dropped.",
    entry="harmless",
)
def harmless_without_a_drop() -> Input:
    return {"tables": [[0], [0, 2]], "parents": [1, 0], "others": [0, 2]}


@wrong(
    "plausible",
    "With your harmless input the printed code gives a block back that a beam still names: shared"
    " among the beams is not enough, since all of them are counted down first.",
    entry="harmless",
)
def harmless_that_is_not() -> Input:
    return {"tables": [[0], [0, 2]], "parents": [0, 0], "others": []}


def _repair(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, {"reorder": replaced(reorder, parts)}, seen, says)


wrong.add(
    "unrepaired",
    {"reorder": printed},
    "references released before they are taken",
    "Between counting down and counting up a block is nobody's, and is given back. Count the new"
    " tables first.",
)
_repair(
    "once_for_each_parent",
    {"for table in new:": "for table in [tables[p] for p in set(parents)]:"},
    "plausible",
    "Two beams that go on from the same one are two readers: count a block for each of them.",
)
_repair(
    "nothing_given_back",
    {"if count[block] == 0:": "if False:"},
    "plausible",
    "Blocks of dropped beams that nobody names are never given back: the pool runs dry.",
)
_repair(
    "given_back_twice",
    {
        "            if count[block] == 0:\n                unused.append(block)\n": "",
        "    return new": (
            "    unused += [b for table in tables for b in table if count[b] == 0]\n    return new"
        ),
    },
    "plausible",
    "A block that two dropped beams shared was given back twice: two sequences would get it.",
)
_repair(
    "others_not_counted",
    {"count, unused = list(count), list": "count, unused = count_of(tables, count), list"},
    "counts made anew from the tables at hand",
    "You count the beams' tables only. Others may read the same blocks: change the counts that you"
    " were given.",
)
_repair(
    "given_back_at_one",
    {"if count[block] == 0:": "if count[block] <= 1 and block not in unused:"},
    "“when one is left, nobody shares it”",
    "You give a block back when one table is left that names it.",
)
_repair(
    "whole_tables_given_back",
    {
        "    for table in tables:\n": "    for p, table in enumerate(tables):\n",
        "if count[block] == 0:": "if p not in parents and block not in unused:",
    },
    "plausible",
    "You give back all blocks of a dropped beam. Others may still read some of them: look at the"
    " count.",
)


def count_of(tables: Tables, count: list[int]) -> list[int]:
    return [sum(block in table for table in tables) for block in range(len(count))]


def _shows_it(given: Input) -> bool:
    args = given["tables"], given["parents"]
    held = state(given["tables"], given["others"], N_BLOCKS)
    return seen_of(printed(*args, *held)) != seen_of(reorder(*args, *held))


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """Whether `expose` shows the fault, whether `harmless` hides it, or what the repaired code
    returns."""
    if case.args[0] == "expose":
        found = plain(answer.call("expose"))
        if not isinstance(found, list | tuple) or not 1 <= len(found) <= 10:
            return {"the inputs": "expose() must return a list of 1 to 10 inputs", "shown": False}
        said = next(filter(None, map(problem, found)), "")
        return {"the inputs": said or "valid", "shown": not said and any(map(_shows_it, found))}
    if case.args[0] == "harmless":
        given = plain(answer.call("harmless"))
        if said := problem(given):
            return {"the input": said, "a beam is dropped": False, "hidden": False}
        dropped = len(set(given["parents"])) < len(given["tables"])
        return {"the input": "valid", "a beam is dropped": dropped, "hidden": not _shows_it(given)}
    return seen_of(answer.call("reorder", *case.args))


def cases(rng: random.Random) -> list[Case]:
    """The two inputs, then the repaired function: beams dropped, doubled, swapped, more, fewer
    and none; others that read along; 257 beams, and tables of 257 blocks."""
    many = past(256)
    wide = [[0, i + 1] for i in range(many)]
    deep = [[*range(many)], [*range(many - 1), many]]
    long = past(2048)
    fixed = {
        **FIXED,
        f"{many} beams": (wide, [many - 1] * many, []),
        f"tables of {many} blocks": (deep, [1, 1], [7]),
        f"others name block {past(512)}": ([[0, 1], [0, 2]], [0, 0], [past(512)]),
        f"a table of {long} blocks": ([[*range(long)], [0]], [0, 0], []),
    }
    sizes = {n: max([9, *(b + 1 for t in [*f[0], f[2]] for b in t)]) for n, f in fixed.items()}
    fresh = [drawn(rng, rng.randrange(2, 6)) for _ in range(5)]
    return [
        Case("inputs that show the fault", ("expose",)),
        Case("an input that hides it", ("harmless",)),
        *(
            Case(name, (tables, parents, *state(tables, others, sizes[name])))
            for name, (tables, parents, others) in fixed.items()
        ),
        *(Case(f"fresh {i + 1}", args, public=i < 2) for i, args in enumerate(fresh)),
    ]


EXERCISE = Exercise(
    id="paging-snippet",
    title="Beams that go on from other beams",
    kind="fault",
    points=4,
    minutes=12,
    entries=("expose", "harmless", "reorder"),
    cases=cases,
    observe=observe,
    reference={"expose": expose, "harmless": harmless, "reorder": reorder},
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Follow the count of one block that a beam keeps, line by line. What is it in the middle?",
        (
            "It falls to 0 before it rises again, and the block is given back. Unless somebody who"
            " is no beam counts as well."
        ),
        (
            "Repair: make the new tables and count them up first, then count the old ones down."
            " What is 0 then is nobody's."
        ),
    ),
    recall=(
        "A reference is replaced by another one. Which is counted first?",
        "The new one, up. Else the same thing falls to 0 in between, and is given away.",
    ),
)
