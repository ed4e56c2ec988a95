"""paging-counts_log: a block manager's log says what went wrong first."""

from __future__ import annotations

import random
from collections.abc import Iterator

from twophase.checks.compare import EXACT
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Log = list[dict[str, str | int]]  # "event" and "block"


def reference(events: Log) -> str:
    """The right answer."""
    readers: dict[str | int, int] = {}
    for e in events:
        what, block = e["event"], e["block"]
        n = readers.get(block, 0)
        if what == "take" and n > 0:
            return "taken twice"
        if what != "take" and n == 0:
            return "used after free"
        if what == "write" and n > 1:
            return "shared write"
        readers[block] = n + {"take": 1, "share": 1, "release": -1, "write": 0}[str(what)]
    return "leak" if any(n > 0 for n in readers.values()) else "healthy"


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "free_at_the_first_release",
    {
        "readers[block] = n + {": "readers[block] = 0 if what == 'release' else n + {",
    },
    "a free list without counts",
    "A release gives back one reader's share. The block is free when the last one has released it.",
)
_add(
    "shares_not_counted",
    {'"share": 1,': '"share": 0,'},
    "plausible",
    "Each share is a reader more, and takes a release of its own.",
)
_add(
    "every_shared_write_is_wrong",
    {
        'what == "write" and n > 1': 'what == "write" and block in shared',
        "    readers: dict[str | int, int] = {}": (
            "    readers: dict[str | int, int] = {}\n    shared = [e['block'] for e in events if"
            " e['event'] == 'share']"
        ),
    },
    "plausible",
    "A block that was shared once may be written to again, when one reader is left.",
)
_add(
    "writes_not_looked_at",
    {'if what == "write" and n > 1:': "if False:"},
    "plausible",
    "A write to a block that several read changes what the others see.",
)
_add(
    "leaks_not_seen",
    {'"leak" if any(n > 0 for n in readers.values()) else "healthy"': '"healthy"'},
    "plausible",
    "When the log ends all sequences have ended: a block with readers left is lost.",
)
_add(
    "takes_against_releases",
    {
        "any(n > 0 for n in readers.values())": (
            'sum({"take": 1, "release": -1}.get(e["event"], 0) for e in events)'
        )
    },
    "plausible",
    "You compare takes with releases. Every share needs a release, too.",
)
_add(
    "released_twice_is_fine",
    {'what != "take" and n == 0': 'what in ("share", "write") and n == 0'}
    | {"readers[block] = n + {": "readers[block] = max(0, n - 1) if what == 'release' else n + {"},
    "if count > 0: count -= 1",
    "A block that nobody holds was released: a double free, even if the count stays at 0.",
)


@wrong(
    "plausible",
    "You look for one kind of fault after the other. The first fault in the log is the cause; what"
    " follows may be its consequence.",
)
def by_kind(events: Log) -> str:
    found = set()
    readers: dict[str | int, int] = {}
    for e in events:
        what, block = e["event"], e["block"]
        n = readers.get(block, 0)
        if what == "take" and n > 0:
            found.add("taken twice")
        elif what != "take" and n == 0:
            found.add("used after free")
            continue
        elif what == "write" and n > 1:
            found.add("shared write")
        readers[block] = n + {"take": 1, "share": 1, "release": -1, "write": 0}[str(what)]
    for said in ("taken twice", "used after free", "shared write"):
        if said in found:
            return said
    return "leak" if any(n > 0 for n in readers.values()) else "healthy"


WORDS = {"t": "take", "s": "share", "r": "release", "w": "write"}


def log(text: str) -> Log:
    """The events of a short text: "t3 w3 s3 r3 r3"."""
    return [{"event": WORDS[word[0]], "block": int(word[1:])} for word in text.split()]


EDGES = {
    "one block": "t3 w3 r3",
    "shared and released": "t3 w3 s3 r3 r3",
    "shared by three": "t3 s3 s3 r3 r3 r3",
    "taken again": "t3 w3 r3 t3 w3 r3",
    "two blocks": "t1 t2 w1 w2 r2 r1",
    "nothing happened": "",
    "never written": "t3 r3",
    "written after the others have gone": "t3 s3 r3 w3 r3",
    "written before it is shared": "t3 w3 w3 s3 r3 r3",
    "block 0": "t0 w0 s0 r0 r0",
    "taken while it is held": "t3 w3 t3 r3 r3",
    "taken while it is shared": "t3 s3 r3 t3 r3 r3",
    "block 0 taken twice": "t0 t0 r0 r0",
    "released twice": "t3 w3 r3 r3",
    "a shared one released three times": "t3 s3 r3 r3 r3",
    "released without being taken": "r3",
    "written after its release": "t3 w3 r3 w3",
    "shared after its release": "t3 r3 s3",
    "written without being taken": "t1 w2 r1",
    "written while shared": "t3 w3 s3 w3 r3 r3",
    "written while three hold it": "t3 s3 s3 w3 r3 r3 r3",
    "written while two of three are left": "t3 s3 s3 r3 w3 r3 r3",
    "never released": "t3 w3",
    "released once too few": "t3 s3 r3",
    "two hold it in the end": "t3 s3",
    "blocks far apart": "t7 t1007 t4103 w7 w1007 w4103 r7 r1007 r4103",
    "one of two leaks": "t1 t2 w1 w2 r1",
    "the last of three leaks": "t1 t2 t3 r1 r2",
    "a leak of block 0": "t0 w0",
    "as many releases as takes": "t1 s1 r1 t2 r2",
    "two faults: shared write first": "t3 s3 w3 t3 r3 r3 r3",
    "two faults: release first": "t3 r3 r3 t4 t4",
    "two faults: taken first": "t3 t3 w3 r3 r3",
    "two faults: shared write, then used after free": "t1 s1 w1 r1 r1 r1",
    # looked at block by block, in whatever order, one of these gives the later fault
    "two blocks: the higher one is taken twice, then the lower one released twice": (
        "t3 t5 t5 r3 r3 r5"
    ),
    "two blocks: the higher one is released twice, then the lower one taken twice": (
        "t3 t5 r5 r5 t3 r3"
    ),
    "two blocks: the higher one is written while shared, then the lower one released twice": (
        "t3 t5 s5 w5 r3 r3 r5 r5"
    ),
    "two blocks: the lower one comes second and goes wrong first": "t5 t3 t3 r5 r5 r3",
    "two blocks: the lower one comes first and goes wrong first": "t3 t5 t3 r3 r5 r5",
    "two blocks: the higher one comes first and goes wrong first": "t5 t3 t5 r5 r3 r3",
    "a fault at the very end": "t1 r1 t2 s2 r2 r2 r2",
}


def drawn(rng: random.Random, n: int, fault: bool) -> Log:
    """Events of some blocks that are all released in the end, but for one that is changed."""

    def life() -> Iterator[str]:
        block = rng.randrange(1000)
        yield from (f"t{block}", f"w{block}")
        readers = rng.randrange(4)
        yield from (f"s{block}" for _ in range(readers))
        yield from (f"r{block}" for _ in range(readers))
        yield from (f"w{block}", f"r{block}")

    words = [word for _ in range(n) for word in life()]
    if fault:
        words.insert(rng.randrange(len(words)), words[rng.randrange(len(words))])
    return log(" ".join(words))


def cases(rng: random.Random) -> list[Case]:
    """Each fault alone, at the first and the last event, two of them in both orders; nothing wrong;
    blocks and logs past every constant."""
    many, far = past(256), past(4096)
    shared = " ".join(["t5", *["s5"] * many, *["r5"] * many, "w5", "r5"])
    every = " ".join([*(f"t{i}" for i in range(many)), *(f"r{i}" for i in range(many))])
    again = " ".join(["t2 w2 r2"] * past(512))
    long = {
        f"shared {many} times": shared,
        f"shared {many} times, written too soon": shared.replace("r5 w5", "w5 r5"),
        f"{many} blocks": every,
        f"{many} blocks, the last one leaks": every.rsplit(" ", 1)[0],
        f"block {far}": f"t{far} w{far} r{far} t{far + 1} r{far + 1}",
        f"block {far} taken twice": f"t{far} t{far}",
        "a long log": again,
        "a long log, released twice in the end": again + " r2",
    }
    fresh = [drawn(rng, 6, i % 3 > 0) for i in range(8)]
    return [
        *(Case(name, (log(text),)) for name, text in {**EDGES, **long}.items()),
        *(Case(f"log {i + 1}", (events,), public=False) for i, events in enumerate(fresh)),
    ]


EXERCISE = Exercise(
    id="paging-counts_log",
    title="What went wrong first",
    kind="trace",
    points=4,
    minutes=12,
    entries=("diagnose",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Keep one number for each block: how many sequences hold it now.",
        (
            "Before you count an event, ask whether it may happen: a take needs 0 holders, all"
            " others need at least 1, a write exactly 1."
        ),
        (
            "Return at the first event that may not happen. At the end: a leak if any number is"
            " above 0."
        ),
    ),
    recall=(
        "A block's count falls below 0. What has happened?",
        "A double free: somebody released it who did not hold it, and two will be given it.",
    ),
)
