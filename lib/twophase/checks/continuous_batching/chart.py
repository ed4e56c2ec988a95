"""continuous_batching-chart: a chart of slots and steps: is it a schedule?"""

from __future__ import annotations

import random

from twophase.checks.compare import EXACT
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Chart = list[list[str]]  # a row for each slot, an entry for each step: a name, or "" if it is empty


def reference(chart: Chart, lengths: dict[str, int]) -> str:
    """The right answer."""
    places: dict[str, list[tuple[int, int]]] = {name: [] for name in lengths}
    for slot, row in enumerate(chart):
        for step, name in enumerate(row):
            if name:
                places[name].append((step, slot))
    steps = {name: sorted(step for step, _ in found) for name, found in places.items()}
    if any(len(set(found)) < len(found) for found in steps.values()):
        return "two slots"
    if any(len({slot for _, slot in found}) > 1 for found in places.values()):
        return "moves"
    if any(len(steps[name]) != n for name, n in lengths.items()):
        return "length"
    if any(found[-1] - found[0] >= len(found) for found in steps.values()):
        return "pauses"
    last = max((found[0] for found in steps.values()), default=0)  # when the last one begins
    if any("" in row[:last] for row in chart):
        return "idle"
    return "fine"


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "neighboring_slots",
    {
        "any(len(set(found)) < len(found) for found in steps.values())": (
            "any(a and a == b for row, other in zip(chart, chart[1:]) for a, b in zip(row, other))"
        )
    },
    "plausible",
    "You compare a slot with the one below it only: a request may stand in the first and the last.",
)
_add(
    "any_second_slot",
    {
        "any(len(set(found)) < len(found) for found in steps.values())": (
            "any(len({slot for _, slot in found}) > 1 for found in places.values())"
        )
    },
    "plausible",
    "A request in two slots at different steps has moved. “two slots” is for one that stands in two"
    " at the same step.",
)
_add(
    "first_step_only",
    {
        "any(len(set(found)) < len(found) for found in steps.values())": (
            "any(found.count(found[0]) > 1 for found in steps.values() if found)"
        )
    },
    "plausible",
    "You look at a request's first step only: the second slot may come later.",
)
_add(
    "moving_allowed",
    {"any(len({slot for _, slot in found}) > 1 for found in places.values())": "False"},
    "schedulers that compact their batch",
    "A request that goes on in another slot would have to take its cache along: here that is"
    " “moves”.",
)
_add(
    "lengths_not_checked",
    {
        "any(len(steps[name]) != n for name, n in lengths.items())": (
            "any(not steps[name] for name in lengths)"
        )
    },
    "plausible",
    "You do not count a request's steps: it must run for as many as its length says.",
)
_add(
    "too_short_only",
    {"len(steps[name]) != n": "len(steps[name]) < n"},
    "plausible",
    "You look for requests with too few steps: one with too many is as wrong.",
)
_add(
    "missing_ones_not_missed",
    {"any(len(steps[name]) != n for": "any(steps[name] and len(steps[name]) != n for"}
    | {"found[-1] - found[0] >= len(found)": "found and found[-1] - found[0] >= len(found)"}
    | {
        "max((found[0] for found in steps.values())": (
            "max((found[0] for found in steps.values() if found)"
        )
    },
    "checks that go through the chart only",
    "A request that stands nowhere in the chart was never served: go through lengths, not only"
    " through the chart.",
)
_add(
    "pauses_allowed",
    {"any(found[-1] - found[0] >= len(found) for found in steps.values())": "False"},
    "plausible",
    "A request that stops and comes back pauses: nothing here takes its seat away.",
)
_add(
    "idle_anywhere",
    {"row[:last]": "row"},
    "plausible",
    "A slot may be empty when nobody waits any more: at the end that is no fault.",
)
_add(
    "idle_allowed",
    {'any("" in row[:last] for row in chart)': "False"},
    "static batching",
    "A slot stands empty while somebody waits: continuous batching fills it in the next step.",
)
_add(
    "idle_one_step_late",
    {"row[:last]": "row[: last + 1]"},
    "plausible",
    "In the step in which the last request begins nobody waits any more: a slot may be empty then.",
)

PRINTED = ("R1 R1 R1 R1 R4 R4 R4 R5", "R2 R2 R3 R3 R3 R5 R5 R5", "R3 R3 R3 R4 R4 R4 R6 R6")
Made = tuple[Chart, dict[str, int]]


def as_chart(*rows: str, **changed: int) -> Made:
    """A chart of names with blanks between, a point for an empty place; everybody has the length
    with which it stands there, but for those that are changed."""
    made = [[("" if x == "." else x) for x in row.split()] for row in rows]
    names = sorted({x for row in made for x in row if x})
    return made, {x: sum(row.count(x) for row in made) for x in names} | changed


def served(rng: random.Random, lengths: list[int], seats: int) -> Made:
    """What continuous batching makes of these lengths."""
    rows: list[list[str]] = [[] for _ in range(seats)]
    for i, n in enumerate(lengths, 1):
        shortest = min(map(len, rows))
        rng.choice([row for row in rows if len(row) == shortest]).extend([f"R{i}"] * n)
    end = max(map(len, rows))
    filled = [row + [""] * (end - len(row)) for row in rows]
    return filled, {f"R{i}": n for i, n in enumerate(lengths, 1)}


CHARTS: dict[str, Made] = {
    "the chart of the sources": as_chart(*PRINTED),
    "the same with one slot's mistakes mended": as_chart(
        "R1 R1 R1 R1 R4 R4 R4 .", "R2 R2 R5 R5 R5 R5 R5 R5", "R3 R3 R3 R6 R6 . . ."
    ),
    "two requests, one slot": as_chart("A A B"),
    "no request, three empty steps": as_chart(". . ."),
    "no request, no step": ([[], []], {}),
    "a request, no step": ([[], []], {"A": 1}),
    "one request": as_chart("A"),
    "first and last slot at once": as_chart("A A B", "C D D", "E A A", A=4),
    "two slots at once, in the last step only": as_chart("A A A", "B C A"),
    "two slots at once, in the middle": as_chart("A A B B", "C A D D"),
    "in all slots at once": as_chart("A B", "A C", "A D"),
    "moves to the other slot": as_chart("A A B B", "C C A D"),
    "moves and comes back": as_chart("A B A", "C A D"),
    "moves to a slot further on": as_chart("A A B", "C D D", "E F A"),
    "moves after a while": as_chart("A B B C", "D D D A"),
    "moves, and somebody stands in two slots": as_chart("A A B B", "C C A B"),
    "one step too few": as_chart("A A B", A=3),
    "one step too many": as_chart("A A B", A=1),
    "one step too many, another too few": as_chart("A A B", B=2, A=1),
    "a request that stands nowhere": as_chart("A A B", C=2),
    "nobody stands anywhere": as_chart(". .", A=1),
    "a pause": as_chart("A B A C", "D D D D"),
    "the same without the pause": as_chart("A A B C", "D D D D"),
    "a pause in an empty place": as_chart("A . A", "B B B"),
    "a pause in the last slot": as_chart("D D D D", "E E E .", "A B A C"),
    "a pause of several steps": as_chart("A B B B A", "C C D D E"),
    "a pause, and a wrong length": as_chart("A B A C", "D D D D", D=5),
    "moves, and a wrong length": as_chart("A A B B", "C C A D", D=5),
    "empty while somebody waits": as_chart("A A B", "C . D"),
    "empty at the start": as_chart("A A B", ". C C"),
    "empty in the step before the last one begins": as_chart("A A A B", "C C . ."),
    "empty in the step in which the last one begins": as_chart("A A A B", "C C C ."),
    "empty at the end": as_chart("A A A A", "B C . ."),
    "a static batch": as_chart("A A A A D D", "B . . . E E", "C C . . F ."),
    "more slots than requests": as_chart("A A", "B .", ". ."),
    "a slot that nobody uses while somebody waits": as_chart("A B", ". ."),
    "all begin at once": as_chart("A A A", "B . .", "C C ."),
    "idle, and a pause": as_chart("A . B A", "C C C C"),
    "R1 and R10 are two": as_chart("R1 R1 R2 R11", "R10 R1x R10x R12"),
    "a blank is a name, too": ([["A", " "], ["B", "B"]], {"A": 1, " ": 1, "B": 2}),
    "one step for everybody": as_chart("A B C D", "E F G ."),
}


def _spoilt(rng: random.Random, rows: Chart, lengths: dict[str, int]) -> Made:
    """A right chart, or one with a fault: which, must not be known from its place."""
    rows, fault = [list(row) for row in rows], rng.randrange(4)
    if fault == 1:  # somebody's first step is another's
        rows[0][0] = rows[1][0]
    elif fault == 2:
        lengths = lengths | {"R9": lengths["R9"] + 1}
    elif fault == 3:  # a slot begins a step late
        rows = [["", *rows[0]], *([*row, ""] for row in rows[1:])]
    return rows, lengths


def cases(rng: random.Random) -> list[Case]:
    """The sources' chart, each fault alone and with another, in first, middle and last places;
    right charts; large ones; fresh ones."""
    fixed = random.Random(15)
    many = served(fixed, [fixed.randrange(1, 9) for _ in range(600)], past(256))
    long = served(fixed, [past(2048), 900, past(1200), 3, 1, 2], 2)
    late = [*long[0][0][:-1], "R3"], [*long[0][1][:-1], "R3"]
    made = dict(CHARTS)
    made["300 slots and more"] = many
    made["a long chart"] = long
    made["a long chart, two slots at its end"] = (list(late), long[1])
    apart = [row.copy() for row in many[0]]
    apart[0][-1] = apart[-1][-1] = "R600"
    made["300 slots, one name in the first and the last"] = apart, many[1]
    made["300 slots, the last one empty while somebody waits"] = as_chart(
        *(f"A{i} B{i}" for i in range(299)), ". C"
    )
    made["5,000 steps, a pause in the last but one"] = (
        [["A"] * 4998 + ["B", "A"]],
        {"A": 4999, "B": 1},
    )
    made["many, the last one's length wrong"] = (many[0], {**many[1], "R600": many[1]["R600"] + 1})
    drawn = {}
    for i in range(6):
        right = served(rng, [rng.randrange(1, 6) for _ in range(9)], 3)
        drawn[f"fresh {i + 1}"] = _spoilt(rng, *right)
    return [
        *(
            Case(name, args, public=len(args[0]) < 10 and len(args[0][0]) < 100)
            for name, args in made.items()
        ),
        *(Case(name, args, public=False) for name, args in drawn.items()),
    ]


EXERCISE = Exercise(
    id="continuous_batching-chart",
    title="One request in two slots",
    kind="test",
    points=3,
    minutes=10,
    entries=("chart_fault",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "For each name in lengths: collect the pairs (step, slot) at which it stands.",
        (
            "The same step twice: “two slots”. More than one slot: “moves”. Another number of"
            " pairs than its length: “length”. Steps with a hole: “pauses”."
        ),
        (
            "“idle”: somebody waits in all steps before the one in which the last request begins."
            " Is a slot empty in one of these?"
        ),
    ),
    recall=(
        "What is wrong with a chart of continuous batching in which a request stands in two slots"
        " at one step?",
        "A request's next token needs the one before: it can say one token a step, on one seat.",
    ),
)
