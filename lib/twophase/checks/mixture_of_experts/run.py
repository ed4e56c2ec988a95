"""mixture_of_experts-run: tokens to their experts and back, each expert called once."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from twophase.checks import edges
from twophase.checks.answer import Answer
from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import normal
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor
Expert = Callable[[int, Tensor], Tensor]


def reference(x: Tensor, experts: Tensor, weights: Tensor, expert: Expert) -> Tensor:
    """The right answer."""
    y = torch.zeros_like(x)
    for e in sorted(set(experts.flatten().tolist())):
        token, choice = (experts == e).nonzero(as_tuple=True)
        answer = expert(e, x[token])
        y[token] += weights[token, choice, None] * answer
    return y


def _change(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_change(
    "weights_left_out",
    {"weights[token, choice, None] * answer": "answer"},
    "plausible",
    "You added the answers without their weights.",
)
_change(
    "weights_on_the_way_in",
    {
        "expert(e, x[token])": "expert(e, weights[token, choice, None] * x[token])",
        "weights[token, choice, None] * answer": "answer",
    },
    "plausible",
    "You weigh what goes into the expert. An expert is no linear function: weigh what it returns.",
)
_change(
    "overwritten",
    {"y[token] += weights": "y[token] = weights"},
    "plausible",
    "A later expert overwrites what an earlier one said of the token: add them up.",
)
_change(
    "weights_by_expert_number",
    {"weights[token, choice, None]": "weights[token, e % weights.shape[1], None]"},
    "an index mixed up",
    "Your weights are taken by the expert's number. weights[t, j] belongs to experts[t, j], the"
    " j-th choice of token t.",
)
_change(
    "first_choice_only",
    {
        "in sorted(set(experts.flatten().tolist())):": "in experts[:, 0].unique().tolist():",
        "(experts == e).nonzero": "(experts[:, :1] == e).nonzero",
    },
    "top-1 code run with k = 2",
    "Only the first choice of each token is visited: every token has k.",
)
_change(
    "second_choice_forgotten_where_first",
    {"(experts == e).nonzero(as_tuple=True)":
     "((experts == e) & (torch.arange(experts.shape[1]) == (experts == e).int().amax(0).argmax()))"
     ".nonzero(as_tuple=True)"},
    "a loop over choices left too early",
    "An expert may be the first choice of one token and the second of another: it answers both.",
)  # fmt: skip


@wrong(
    "loops over range(E)",
    "You call experts that no token visits: their weights would be read for nothing.",
)
def idle_ones_called(x: Tensor, experts: Tensor, weights: Tensor, expert: Expert) -> Tensor:
    y = torch.zeros_like(x)
    for e in range(int(experts.max()) + 1):
        token, choice = (experts == e).nonzero(as_tuple=True)
        y[token] += weights[token, choice, None] * expert(e, x[token])
    return y


@wrong(
    "a mask over every expert's answers",
    "Every touched expert of yours sees all tokens, and most of its answers are thrown away: give"
    " it its visitors only.",
)
def everybody_everywhere(x: Tensor, experts: Tensor, weights: Tensor, expert: Expert) -> Tensor:
    y = torch.zeros_like(x)
    for e in sorted(set(experts.flatten().tolist())):
        share = (weights * (experts == e)).sum(1, True)  # [tokens, 1]
        y += share * expert(e, x)
    return y


@wrong(
    "a loop over tokens",
    "You call an expert once for each visit: its weights would be read again each time. One call"
    " with all its visitors.",
)
def a_call_for_each_visit(x: Tensor, experts: Tensor, weights: Tensor, expert: Expert) -> Tensor:
    y = torch.zeros_like(x)
    for t in range(len(x)):
        for j in range(experts.shape[1]):
            y[t] += weights[t, j] * expert(int(experts[t, j]), x[t : t + 1])[0]
    return y


@wrong(
    "sorted tokens that are not put back",
    "Your outputs stand in the order of the experts: put them back in that of the tokens.",
)
def not_put_back(x: Tensor, experts: Tensor, weights: Tensor, expert: Expert) -> Tensor:
    parts = []
    for e in sorted(set(experts.flatten().tolist())):
        token, choice = (experts == e).nonzero(as_tuple=True)
        parts.append(weights[token, choice, None] * expert(e, x[token]))
    return torch.cat(parts).view(len(x), experts.shape[1], -1).sum(1)


def of_any_making(e: int, rows: Tensor) -> Tensor:
    """What expert e of the judge's makes of its visitors, row by row."""
    return (1 + e % 7) * rows + torch.sin(rows * (1 + e % 5)) + rows.roll(1, -1) * rows


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """Who was called with which rows, the calls sorted by expert; then the outputs."""
    calls: list[tuple[int, Tensor]] = []

    def expert(e: Any, rows: Any) -> Tensor:
        number = int(e)
        calls.append((number, rows))
        return of_any_making(number, rows)

    y = answer.call("run", *case.args, expert)
    calls.sort(key=lambda call: call[0])
    return {
        "experts called": [e for e, _ in calls],
        "rows for each": [len(rows) for _, rows in calls],
        "rows": [rows for _, rows in calls],
        "outputs": y,
    }


def routing(rng: random.Random, n: int, E: int, k: int) -> Tensor:
    """k distinct experts for each token, int64 [n, k]."""
    return torch.tensor([rng.sample(range(E), k) for _ in range(n)])


def cases(rng: random.Random) -> list[Case]:
    """One token; one expert; idle experts before, between and behind; all in one; k = E; many
    tokens; many experts."""

    def case(name: str, D: int, experts: Tensor, public: bool = True) -> Case:
        n, k = experts.shape
        weights = 0.1 + normal(rng, n, k).abs()
        return Case(name, (normal(rng, n, D), experts, weights), public=public)

    visits = torch.tensor([[0, 1], [1, 2], [2, 0]])
    unweighted = normal(rng, 3, 4), visits, torch.tensor([[0.5, 0.5], [0.0, 0.0], [0.0, 1.0]])
    n_tokens, n_experts = edges.past(512), edges.past(256)
    return [
        case("two tokens that change places", 3, torch.tensor([[0, 1], [1, 0]])),
        case("one token, one expert", 2, torch.tensor([[0]])),
        Case("visits of weight 0", unweighted),
        Case("weights below 0", (*unweighted[:2], unweighted[2] - 0.25)),
        case("experts 2 and 5 of many", 3, torch.tensor([[5, 2], [2, 5], [5, 2]])),
        case("three tokens, three experts", 4, torch.tensor([[2, 0], [1, 2], [0, 1]])),
        case("all tokens at expert 3", 3, torch.tensor([[3], [3], [3], [3]])),
        case("an expert that is first, second and third choice", 5,
             torch.tensor([[4, 1, 0], [1, 4, 6], [0, 6, 4], [6, 0, 1]])),
        case("every expert visited by all", 3, routing(rng, 4, 5, 5)),
        case(f"{n_tokens} tokens", 2, routing(rng, n_tokens, 4, 2)),
        case(f"expert {n_experts}", 2, torch.tensor([[n_experts, 7], [7, 300]])),
        case("nine experts up to 4,099", 2, torch.tensor([[4099, 4096, *range(9, 2, -1)]])),
        case("tokens of one number", 1, routing(rng, 5, 6, 2)),
        case("fresh", 3, routing(rng, rng.randrange(5, 12), rng.randrange(4, 9), 3), public=False),
    ]  # fmt: skip


EXERCISE = Exercise(
    id="mixture_of_experts-run",
    title="To the experts and back",
    kind="kernel",
    points=5,
    minutes=25,
    entries=("run",),
    cases=cases,
    observe=observe,
    reference=reference,
    compare=Tolerance(
        rtol=1e-5, atol=1e-5, dtype=True, why="up to nine terms in fp32, added in another order"
    ),
    misconceptions=tuple(wrong),
    hints=(
        "Go over the experts that are visited, not over the tokens.",
        "(experts == e).nonzero(as_tuple=True) gives the tokens that visit e, and as which choice.",
        (
            "answer = expert(e, x[token]); y[token] += weights[token, choice, None] * answer: no"
            " token visits an expert twice, so no index stands twice in token."
        ),
    ),
    recall=(
        "Why are tokens sorted by expert before the products?",
        "So that each touched expert's weights are read once, for all its visitors.",
    ),
)
