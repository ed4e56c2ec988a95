"""paging-blocks: a block manager with reference counts and copy-on-write."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions
from twophase.checks.paging import _manager
from twophase.checks.paging._broken_managers import MANAGERS
from twophase.checks.paging._manager import Op, Right, script

wrong = Misconceptions()


def _add(slug: str, broken: str, seen: str, says: str) -> None:
    wrong.add(slug, MANAGERS[broken], seen, says)


_add(
    "frees_what_others_hold",
    "frees what others hold",
    "a free list without counts",
    "A block that another sequence still names went back to the free ones: give it back when its"
    " count is 0.",
)
_add(
    "given_back_at_one",
    "gives a block back when one reader is left",
    "“when one is left, nobody shares it”",
    "You give a block back when one sequence is left that names it: that one still reads it.",
)
_add(
    "writes_to_shared_blocks",
    "writes to shared blocks",
    "plausible",
    "A token was written to a block that another sequence reads: copy it first.",
)
_add(
    "count_kept_at_a_copy",
    "copies, and leaves the count as it is",
    "“you copy and reduce the reference count”",
    "After a copy the old block has one reader fewer, and you did not count it down: in the end it"
    " is never free.",
)
_add(
    "copies_again_and_again",
    "copies what was ever forked",
    "plausible",
    "You copy whenever a sequence was once forked. Its block is its own again after the first copy,"
    " or when the other has ended: look at the count.",
)
_add(
    "fork_takes_blocks",
    "takes blocks for a fork",
    "fork() of a process, before copy-on-write",
    "A fork took blocks of its own. It copies the table only: both read the same blocks.",
)
_add(
    "one_table_for_both",
    "gives a fork the parent's own table",
    "b = a for a list",
    "Parent and child have one list for a table: what one appends, the other has as well. Copy the"
    " list.",
)
_add(
    "a_block_too_many",
    "takes a block more for a multiple of the block",
    "n // size + 1 for a number of blocks",
    "A length that is a multiple of the block takes n / block_size blocks, not one more.",
)
_add(
    "the_last_block_refused",
    "never takes the last free block",
    "plausible",
    "You refuse a sequence that would take the last free blocks: they are there to be taken.",
)
_add(
    "takes_before_it_refuses",
    "takes what there is and then refuses",
    "plausible",
    "You took blocks and then refused: ask for all of them before you take the first.",
)
_add(
    "copies_the_wrong_way",
    "copies the wrong way",
    "plausible",
    "The pair is (from, to): the shared block first, then the new one.",
)
_add(
    "refuses_without_need",
    "refuses every token of a full pool",
    "plausible",
    "A token that has a place in a block of its own needs no free block: append may not refuse it.",
)
_add(
    "no_room_for_a_copy_unseen",
    "does not see that a copy needs a block",
    "plausible",
    "A copy needs a free block as well: raise ValueError if there is none.",
)
_add(
    "counted_before_it_refuses",
    "counts a token that it refuses",
    "plausible",
    "The refused append counted its token: check first, and change nothing if you refuse.",
)


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """What each operation of the script shows."""
    n_blocks, block_size, ops = case.args
    manager = answer.new("BlockManager", n_blocks, block_size)
    return _manager.shown(manager, n_blocks, block_size, ops)


SCRIPTS: tuple[tuple[str, int, int, str], ...] = (  # blocks, block size; "a5" allocate, "+a", ...
    ("three tokens, block by block", 4, 2, "a3 +a +a"),
    ("a length that is a multiple of the block", 4, 4, "a8 +a"),
    ("one less than a multiple, one more", 4, 4, "a3 b5 +a +a"),
    ("all blocks, then none", 3, 2, "a6 +a b1 -a b1"),
    ("the last free block", 3, 2, "a2 b4 -b +a +a +a"),
    ("too long by a token", 3, 2, "a7 a6"),
    ("refused with some free, then a shorter one", 4, 2, "a3 b5 b4 +a"),
    ("blocks of one token", 4, 1, "a1 +a a>b +a +b -a +b"),
    ("a pool of one block", 1, 4, "a1 +a a>b +a -b +a +a +a"),
    ("a fork, then the parent writes", 4, 4, "a2 a>b +a +b"),
    ("a fork, then the child writes", 4, 4, "a2 a>b +b +a +b +a"),
    ("a fork at the end of a block", 4, 2, "a2 a>b +b +a"),
    ("a fork in the second block", 6, 4, "a6 a>b +b +b +b +a"),
    ("the parent ends, the child writes on", 3, 2, "a3 a>b -a +b +b c1"),
    ("the child ends, the parent writes on", 3, 2, "a3 a>b -b +a +a"),
    ("a fork of a fork, whose parents end", 6, 2, "a3 a>b b>c -a -b +c d4 +c"),
    ("three that share a block", 6, 4, "a2 a>b a>c +b +c +a +a -b -c -a d20 e24 e4"),
    ("a fork in a full pool", 2, 2, "a3 b1 a>c c>d -c -d"),
    ("a fork in a full pool, and a write", 2, 2, "a3 a>c +c +a -c +a"),
    ("a copy takes the last block", 3, 2, "a3 a>b +b +a +a"),
    ("a fork at the end of a full pool", 1, 2, "a2 a>b +a +b -b +a"),
    ("fork, copy, free: all is free again", 5, 4, "a6 a>b +b +a -a -b c20"),
    ("names used again", 4, 2, "a3 -a a1 a>b -a +b a2 +a"),
    ("a fork of what was copied", 6, 4, "a1 a>b +b b>c +c +b +a -c +b"),
    ("freed and taken, again and again", 3, 2, "a4 -a b6 -b c2 d4 -c e1 -d f2"),
)


def drawn(rng: random.Random, n_ops: int) -> list[Op]:
    """Operations on sequences that are there, if none is refused."""
    ops: list[Op] = []
    there: list[str] = []
    names = iter("abcdefghijklmnopqrstuvwxyz")
    while len(ops) < n_ops:
        what = rng.choice(("allocate", "append", "append", "append", "fork", "fork", "free"))
        if what == "allocate" or not there:
            if (name := next(names, "")) == "":
                break
            ops.append(("allocate", name, rng.randrange(1, 9)))
            there.append(name)
        elif what == "append":
            ops.append(("append", rng.choice(there)))
        elif what == "free":
            ops.append(("free", there.pop(rng.randrange(len(there)))))
        elif (name := next(names, "")) != "":
            ops.append(("fork", rng.choice(there), name))
            there.append(name)
    return ops


def cases(rng: random.Random) -> list[Case]:
    """Multiples of the block and their neighbors, full pools, forks of forks, ends in every order;
    a pool, a block and a sequence past every constant."""
    many = past(256)
    long = [("allocate", "a", many), ("fork", "a", "b"), *[("append", "b")] * 5, ("free", "a")]
    deep = [("allocate", "a", past(2048)), ("fork", "a", "b"), ("append", "b"), ("free", "a")]
    one_by_one = [("allocate", "a", 1), *[("append", "a")] * many]
    forks: list[Op] = [("allocate", "a", 3), *(("fork", "a", f"f{i}") for i in range(12))]
    forks += [op for i in range(12) for op in (("append", f"f{i}"), ("free", f"f{i}"))]
    fresh = [(9 + 3 * i, rng.choice((2, 3, 4)), drawn(rng, 24)) for i in range(4)]
    return [
        *(Case(name, (n, size, script(text))) for name, n, size, text in SCRIPTS),
        Case(f"{many} tokens in blocks of one", (many + 3, 1, long)),
        Case(f"{many} tokens in a block of {past(2048)}", (2, past(2048), long)),
        Case(f"{past(2048)} tokens in blocks of {many}", (18, many, deep)),
        Case("one token after the other", (many, 2, one_by_one)),
        Case("twelve forks", (14, 2, forks)),
        *(Case(f"fresh {i + 1}", args, public=i < 2) for i, args in enumerate(fresh)),
    ]


EXERCISE = Exercise(
    id="paging-blocks",
    title="A block manager",
    kind="kernel",
    points=6,
    minutes=20,
    entries=("BlockManager",),
    cases=cases,
    observe=observe,
    reference=Right,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "Keep four things: the free blocks, how many tables name each block, a table for each"
            " sequence, and its length."
        ),
        (
            "append has three ways: the last block is full (take one), it is shared (take one, and"
            " the old one has a reader fewer), it is the sequence's own (nothing)."
        ),
        (
            "Full: length % block_size == 0. Shared: count[table[-1]] > 1. Refuse before you change"
            " anything, and only if a block is needed and none is free."
        ),
    ),
    recall=(
        "A sequence is forked when its last block is full, and both go on. How many copies?",
        "None: each takes a new block. Only a shared block that is written to is copied.",
    ),
)
