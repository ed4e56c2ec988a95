"""pruning-mapping: pruned query heads whose KV heads shift; exposed, hidden and repaired."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Input = dict[str, Any]


def kv_of(kept: list[int], N: int, K: int) -> list[int]:
    """The right answer."""
    G = N // K
    left = sorted({n // G for n in kept})  # KV heads that stay, by their old numbers
    return [left.index(n // G) for n in kept]


def printed(kept: list[int], N: int, K: int) -> list[int]:
    """As the notebook prints it."""
    left = len({n // (N // K) for n in kept})
    G = max(1, len(kept) // left)
    return [i // G for i in range(len(kept))]


def expose() -> list[Input]:
    """The right answer (one of many)."""
    return [{"kept": [0, 1, 2, 4], "N": 6, "K": 2}]


def harmless() -> Input:
    """The right answer (one of many): two of the three heads of each group that is left."""
    return {"kept": [0, 2, 7, 8], "N": 9, "K": 3}


@wrong(
    "pruning of whole groups",
    "In your inputs every group keeps as many heads: then counting through is right.",
    entry="expose",
)
def exposed_by_equal_groups() -> list[Input]:
    return [{"kept": [0, 1, 4, 5], "N": 6, "K": 2}]


@wrong(
    "plausible",
    "In your inputs a single KV head is left: all heads read that one.",
    entry="expose",
)
def exposed_by_one_group() -> list[Input]:
    return [{"kept": [3, 5], "N": 6, "K": 2}]


@wrong(
    "models without grouped heads",
    "In your inputs every query head has a KV head of its own: whichever goes, its own goes with"
    " it.",
    entry="expose",
)
def exposed_without_groups() -> list[Input]:
    return [{"kept": [0, 2], "N": 3, "K": 3}]


@wrong(
    "plausible",
    "In your harmless input no KV head goes: let all readers of one be cut.",
    entry="harmless",
)
def harmless_without_a_loss() -> Input:
    return {"kept": [0, 2, 3, 4], "N": 6, "K": 2}


@wrong(
    "plausible",
    "In your harmless input whole groups go and nothing else: let a KV head that stays lose one of"
    " its readers.",
    entry="harmless",
)
def harmless_by_whole_groups() -> Input:
    return {"kept": [0, 1, 2, 6, 7, 8], "N": 9, "K": 3}


@wrong(
    "plausible",
    "Your harmless input is none: the printed code gives some head the wrong KV head.",
    entry="harmless",
)
def harmless_that_is_not() -> Input:
    return {"kept": [0, 1, 3], "N": 9, "K": 3}


def _repair(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, {"kv_of": replaced(kv_of, parts)}, seen, says)


wrong.add(
    "unrepaired",
    {"kv_of": printed},
    "h // G with the new G",
    "You still count through the heads that are left. A head reads the KV head that it read before:"
    " its old number // G.",
)
_repair(
    "old_numbers",
    {"left.index(n // G)": "n // G"},
    "plausible",
    "Your numbers are those of the old KV heads: some are gone, and the others move up.",
)
_repair(
    "places_for_numbers",
    {
        "left.index(n // G) for n in kept": (
            "left.index(kept[0] // G) + i // G for i, n in enumerate(kept)"
        )
    },
    "h // G after the cut",
    "You divide a head's new place by the old G: divide its old number.",
)
_repair(
    "heads_in_turn",
    {"{n // G for n in kept}": "{n % K for n in kept}", "left.index(n // G)": "left.index(n % K)"},
    "h % K for h // G",
    "Neighbors share a KV head: n // G, not n % K.",
)
_repair(
    "renumbered_by_what_is_missing",
    {"left.index(n // G)": "n // G - (K - len(left))"},
    "plausible",
    "You move every KV head up by all that are gone: only those before it count.",
)

MOST = 64
EXPOSED = ("the inputs", "query heads share KV heads", "several KV heads are left", "one shows it")
HIDDEN = (
    "the input",
    "a KV head is gone",
    "one that stays lost a reader",
    "the printed code is right",
)


def problem(found: Any) -> str:
    """Why something is no input, in one sentence; empty if it is."""
    if not isinstance(found, dict) or set(found) != {"kept", "N", "K"}:
        return 'an input is a dict with the keys "kept", "N", "K"'
    kept, N, K = found["kept"], found["N"], found["K"]
    if not all(type(x) is int and 1 <= x <= MOST for x in (N, K)) or N % K:
        return "N and K are whole numbers from 1 to 64, N a multiple of K"
    if not isinstance(kept, list | tuple) or not kept or any(type(n) is not int for n in kept):
        return "kept is a list of at least one query head, ints"
    if list(kept) != sorted(set(kept)) or not 0 <= kept[0] <= kept[-1] < N:
        return "kept rises, from 0 to N − 1"
    return ""


def _invalid(facts: tuple[str, ...], said: str) -> dict[str, Any]:
    return {facts[0]: said, **dict.fromkeys(facts[1:], False)}


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """Whether `expose` shows the fault, whether `harmless` hides it, or the repaired mapping."""
    if case.args[0] == "expose":
        found = plain(answer.call("expose"))
        if not isinstance(found, list | tuple) or not 1 <= len(found) <= 10:
            return _invalid(EXPOSED, "expose() must return a list of 1 to 10 inputs")
        if said := next((p for p in map(problem, found) if p), ""):
            return _invalid(EXPOSED, said)
        shared = any(x["N"] > x["K"] for x in found)
        several = any(len(set(kv_of(**x))) > 1 for x in found)
        shown = any(printed(**x) != kv_of(**x) for x in found)
        return dict(zip(EXPOSED, ("valid", shared, several, shown), strict=True))
    if case.args[0] == "harmless":
        found = plain(answer.call("harmless"))
        if said := problem(found):
            return _invalid(HIDDEN, said)
        G = found["N"] // found["K"]
        readers = [sum(n // G == j for n in found["kept"]) for j in range(found["K"])]
        facts = (
            "valid",
            0 in readers,
            any(0 < n < G for n in readers),
            printed(**found) == kv_of(**found),
        )
        return dict(zip(HIDDEN, facts, strict=True))
    return {"KV heads": plain(answer.call("kv_of", *case.args))}


def cases(rng: random.Random) -> list[Case]:
    """The two inputs, then the repaired function: no groups, neighbors among them, and one group,
    first, middle and last KV heads gone, unequal groups, nothing gone."""
    wide = past(128)
    made = [
        ([0, 1, 2, 4], 6, 2),
        ([0, 3, 4, 5], 6, 2),
        ([2, 3], 6, 3),
        ([4, 5], 6, 3),
        ([0, 1, 4], 6, 3),
        ([0, 5, 6, 7], 8, 2),
        ([0, 1, 2, 3], 4, 2),
        ([1, 3], 4, 4),
        ([0, 1], 4, 4),
        ([1, 8], 9, 9),  # a set of these need not go round in their order
        ([1, 2], 4, 1),
        ([3], 4, 2),
        ([0, 2], 4, 2),
        ([0, 2], 4, 1),
        ([0, 2], 6, 2),
        ([0], 1, 1),
        ([0, 2, 3, 8, 9, 10, 11], 12, 3),
        ([0, 7, 8, 9, 10, 11, 14], 16, 4),
        ([1, 2 * wide - 1], 2 * wide, wide),
        ([0, wide, wide + 1, 3 * wide - 1], 3 * wide, 3),
        (sorted({*range(0, 640, 2), *range(300, 330)}), 640, 80),
    ]
    fresh = []
    for i in range(4):
        K, G = rng.randrange(2, 6), rng.randrange(2, 6)
        kept = sorted(rng.sample(range(K * G), rng.randrange(1, K * G)))
        fresh.append(Case(f"fresh {i + 1}", (kept, K * G, K), public=i < 2))
    return [
        Case("inputs that show the fault", ("expose",)),
        Case("an input that hides it", ("harmless",)),
        *(
            Case(f"{len(kept)} of {N} heads, K={K}: {kept[:8]}", (kept, N, K))
            for kept, N, K in made
        ),
        *fresh,
    ]


EXERCISE = Exercise(
    id="pruning-mapping",
    title="Who reads which, after the cut",
    kind="fault",
    points=4,
    minutes=18,
    entries=("expose", "harmless", "kv_of"),
    cases=cases,
    observe=observe,
    reference={"expose": expose, "harmless": harmless, "kv_of": kv_of},
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "The printed code counts the heads that are left in equal runs. When"
            " are the runs not equal?"
        ),
        "Harmless: a whole group gone, and of each other group as many heads, but not all.",
        (
            "Repair: a head's KV head is its old number // G, with the old G; its new number is the"
            " place of that among the KV heads that stay."
        ),
    ),
    recall=(
        "Why should pruning leave equally many query heads for each KV head?",
        (
            "Because a config can only say N and K: readers then take head n to"
            " read KV head n // (N/K)."
        ),
    ),
)
