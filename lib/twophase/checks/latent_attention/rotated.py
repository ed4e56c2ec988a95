"""latent_attention-rotated: a cache of turned latents, exposed, hidden and repaired."""

from __future__ import annotations

import random
from typing import Any

import torch

from twophase.checks import edges
from twophase.checks.answer import Answer
from twophase.checks.compare import Tolerance, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import normal
from twophase.checks.latent_attention import _rotated_scores as made
from twophase.checks.latent_attention._rotated_scores import differs, turn
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor
Input = dict[str, list[list[float]]]
LATENTS = [[1.0, 3.0], [2.0, 1.0], [0.0, 1.0]]  # of a harmless input


def scores(q: Tensor, c: Tensor, w_uk: Tensor) -> Tensor:
    """The right answer: unfold, then turn."""
    T, S = len(q), len(c)
    queries = turn(q, torch.arange(S - T, S))
    keys = turn(c @ w_uk.T, torch.arange(S))  # [S, H]
    return queries @ keys.T  # [T, S]


def expose() -> list[Input]:
    """The right answer (one of many)."""
    return [{"q": [[1.0, 2.0]], "c": [[1.0, 0.0], [0.0, 1.0]], "w_uk": [[1.0, 2.0], [3.0, 9.5]]}]


def harmless() -> Input:
    """The right answer (one of many): what only stretches commutes with a turn."""
    return {"q": [[1.0, 2.0]], "c": LATENTS, "w_uk": [[1.0, 0.0], [0.0, 1.0]]}


@wrong(
    "tests of a first token",
    "Each of your inputs has one position, 0, where nothing is turned: the fault cannot show.",
    entry="expose",
)
def exposed_at_position_zero() -> list[Input]:
    return [{"q": [[1.0, 2.0]], "c": [[1.0, 3.0]], "w_uk": [[1.0, 2.0], [3.0, 4.0]]}]


@wrong(
    "constant inputs that accept a wrong index (mojo-gpu-puzzles #31)",
    "Your w_uk is the identity, or a multiple of it: that one may change places with a turn.",
    entry="expose",
)
def exposed_with_the_identity() -> list[Input]:
    return [{"q": [[1.0, 2.0]], "c": [[1.0, 3.0], [2.0, 1.0]], "w_uk": [[2.0, 0.0], [0.0, 2.0]]}]


@wrong(
    "plausible",
    "The later latents of your inputs are zeros: nothing is left to be turned.",
    entry="expose",
)
def exposed_with_zeros() -> list[Input]:
    return [{"q": [[1.0, 2.0]], "c": [[1.0, 3.0], [0.0, 0.0]], "w_uk": [[1.0, 2.0], [3.0, 4.0]]}]


@wrong(
    "plausible",
    "Your inputs have an odd width: points come in pairs of numbers, and a failure on invalid"
    " input shows nothing.",
    entry="expose",
)
def exposed_with_an_odd_width() -> list[Input]:
    c = [[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]]
    return [{"q": [[1.0, 2.0]], "c": c, "w_uk": [[1.0, 2.0, 0.0], [3.0, 4.0, 1.0]]}]


@wrong(
    "plausible",
    "Your harmless input has fewer than three positions, and at position 0 nothing is turned: show"
    " a w_uk for which it is right at later ones.",
    entry="harmless",
)
def harmless_at_position_zero() -> Input:
    return {"q": [[1.0, 2.0]], "c": [[1.0, 3.0]], "w_uk": [[1.0, 2.0], [3.0, 4.0]]}


@wrong(
    "plausible",
    "All scores of your harmless input at later positions are 0: that is right for every code.",
    entry="harmless",
)
def harmless_because_nothing_is_left() -> Input:
    return {"q": [[1.0, 2.0]], "c": LATENTS, "w_uk": [[0.0, 0.0], [0.0, 0.0]]}


@wrong(
    "“a diagonal matrix commutes”",
    "Your harmless w_uk stretches the two numbers of a point differently: a stretched point turned"
    " is not a turned point stretched.",
    entry="harmless",
)
def harmless_by_any_diagonal() -> Input:
    return {"q": [[1.0, 2.0]], "c": LATENTS, "w_uk": [[1.0, 0.0], [0.0, 3.0]]}


wrong.add(
    "unrepaired",
    {
        "scores": replaced(
            scores,
            {
                "queries @ keys.T": "(queries @ w_uk) @ turn(c, torch.arange(S)).T",
            },
        )
    },
    "RoPE applied to the cached latent",
    "The latents are still turned: unfold the key first, then turn it.",
)
wrong.add(
    "absorbed_query_turned",
    {
        "scores": replaced(
            scores,
            {
                "queries @ keys.T": (
                    "turn(q @ w_uk, torch.arange(S - T, S)) @ turn(c, torch.arange(S)).T"
                ),
            },
        )
    },
    "RoPE in the latent's own space",
    "You turn the absorbed query and the latent. That is a score, and it knows distances, but it is"
    " not this model's: its keys are turned after w_uk.",
)
wrong.add(
    "turn_left_out",
    {"scores": replaced(scores, {"queries @ keys.T": "q @ (c @ w_uk.T).T"})},
    "plausible",
    "Nothing is turned any more: the model would no longer know positions.",
)
wrong.add(
    "keys_not_turned",
    {"scores": replaced(scores, {"turn(c @ w_uk.T, torch.arange(S))": "c @ w_uk.T"})},
    "plausible",
    "The keys are not turned: a score then depends on where the query stands, not on the distance.",
)
wrong.add(
    "queries_from_zero",
    {"scores": replaced(scores, {"torch.arange(S - T, S)": "torch.arange(T)"})},
    "RoPE offset restarting at 0 in each forward pass",
    "Your queries stand at 0 to T − 1: they are the last T of the S positions.",
)


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """Whether `expose` shows the fault, whether `harmless` hides it, or the repaired scores."""
    if case.args[0] == "expose":
        return _exposes(plain(answer.call("expose")))
    if case.args[0] == "harmless":
        return _hides(plain(answer.call("harmless")))
    return {"scores": answer.call("scores", *case.args)}


EXPOSED = (
    "the inputs",
    "one has a position after 0",
    "with a latent that is not 0",
    "one shows it",
)
HIDDEN = (
    "the input",
    "it has three positions",
    "turning matters after position 0",
    "the printed code is right",
)


def _invalid(facts: tuple[str, ...], said: str) -> dict[str, Any]:
    """What is wrong stands first, and so is what a message shows."""
    return {facts[0]: said, **dict.fromkeys(facts[1:], False)}


def _exposes(found: Any) -> dict[str, Any]:
    if not isinstance(found, list | tuple) or not 1 <= len(found) <= 10:
        return _invalid(EXPOSED, "expose() must return a list of 1 to 10 inputs")
    if said := next((p for p in map(made.problem, found) if p), ""):
        return _invalid(EXPOSED, said)
    given = [made.tensors(x) for x in found]
    return {
        "the inputs": "valid",
        "one has a position after 0": any(len(c) > 1 for _, c, _ in given),
        "with a latent that is not 0": any(bool(c[1:].any()) for _, c, _ in given),
        "one shows it": any(differs(made.printed(*x), made.right(*x), 0.01) for x in given),
    }


def _hides(found: Any) -> dict[str, Any]:
    if said := made.problem(found):
        return _invalid(HIDDEN, said)
    given = made.tensors(found)
    wanted, flat = made.right(*given), made.never_turned(*given)  # [T, S] each
    enough = len(given[1]) >= 3
    return {
        "the input": "valid",
        "it has three positions": enough,
        "turning matters after position 0": enough and differs(wanted[:, 1:], flat[:, 1:], 0.1),
        "the printed code is right": not differs(made.printed(*given), wanted, 1e-4),
    }


def _but_for_one() -> list[Case]:
    """Calls that differ in one argument alone: whoever remembers by the others is wrong here."""
    q, c, w_uk = map(torch.tensor, ([[1.0, 2.0], [0.0, 1.0]], LATENTS, [[1.0, 2.0], [3.0, 4.0]]))
    one = Case("two queries, three latents", (q, c, w_uk))
    other = Case("rows the other way round", (q.flip(0), c.flip(0), w_uk.flip(0)))
    return edges.crossed(one, other, "another q", "another c", "another w_uk")


def cases(rng: random.Random) -> list[Case]:
    """The two inputs, then the repaired function: one position, many, wider and narrower latents,
    blocks, a square w_uk, more of each than any constant."""

    def case(T: int, S: int, H: int, R: int, says: str = "", public: bool = True) -> Case:
        given = (normal(rng, T, H), normal(rng, S, R), normal(rng, H, R))
        return Case(f"T={T}, S={S}, H={H}, R={R}{says}", given, public=public)

    return [
        Case("inputs that show the fault", ("expose",)),
        Case("an input that hides it", ("harmless",)),
        case(1, 1, 2, 2),
        case(1, 3, 2, 2),
        # of the same sizes: whoever keeps results by shape is wrong here
        case(1, 3, 2, 2, says=", other numbers"),
        *_but_for_one(),
        case(2, 2, 4, 6),
        case(2, 5, 6, 4),
        case(3, 4, 2, 8),
        case(1, edges.past(2048), 2, 4),
        case(edges.past(64), edges.past(64) + 1, 2, 2),  # pair by pair it takes a second at most
        case(1, 3, 2 * edges.past(128), 2),
        case(1, 3, 2, 2 * edges.past(128)),
        case(2, rng.randrange(4, 9), 4, 2 * rng.randrange(1, 5), public=False),
    ]


EXERCISE = Exercise(
    id="latent_attention-rotated",
    title="A rotation in the way",
    kind="fault",
    points=5,
    minutes=20,
    entries=("expose", "harmless", "scores"),
    cases=cases,
    observe=observe,
    reference={"expose": expose, "harmless": harmless, "scores": scores},
    compare=Tolerance(
        rtol=1e-3,
        atol=5e-3,
        dtype=True,
        why="angles in fp32 are good to 1e-4 at the positions used here; wrong scores miss by 0.1",
    ),
    misconceptions=tuple(wrong),
    hints=(
        (
            "Write both scores with matrices: the contract's is (P q) · (P′ W c), the printed one's"
            " (P q) · (W P′ c). When are W P′ and P′ W the same?"
        ),
        (
            "At position 0 nothing is turned, and a multiple of the identity may change places with"
            " a turn. Any other 2 × 2 matrix of unequal numbers shows the fault at position 1."
        ),
        "Repair: turn(c @ w_uk.T, positions of all S), and the turned queries times its transpose.",
    ),
    recall=(
        "Why can a key that RoPE turns not be absorbed into the query?",
        (
            "The turn stands between w_q and w_uk, and it is another one for each distance: there"
            " is no one matrix to merge. So MLA keeps what is turned apart."
        ),
    ),
)
