"""mixture_of_experts-route: the k best experts of each token, and their weights."""

from __future__ import annotations

import random

import torch

from twophase.checks import edges
from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor


def reference(logits: Tensor, k: int, normalize: bool) -> tuple[Tensor, Tensor]:
    """The right answer."""
    scores = logits.softmax(-1)  # [tokens, E]
    weights, experts = scores.topk(k, -1)  # [tokens, k]
    if normalize:
        weights = weights / weights.sum(-1, True)
    return experts, weights


def _change(slug: str, old: str, new: str, seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, {old: new}), seen, says)


_change(
    "never_normalized",
    "if normalize:",
    "if False:",
    "plausible",
    "You never divide by the sum of the k scores, which normalize=True asks for.",
)
_change(
    "always_normalized",
    "if normalize:",
    "if True:",
    "Mixtral's router taken for every model's",
    "You always divide by the sum of the k scores. Without normalize the weights are what the"
    " softmax over all experts says, and sum to less than 1.",
)
_change(
    "the_wrong_way_round",
    "if normalize:",
    "if not normalize:",
    "plausible",
    "You divide by the sum where normalize is False, and do not where it is True.",
)
_change(
    "divided_by_the_whole_batch",
    "weights.sum(-1, True)",
    "weights.sum()",
    "plausible",
    "You divided by the sum over all tokens: each token's own k weights sum to 1.",
)
_change(
    "softmax_over_tokens",
    "logits.softmax(-1)",
    "logits.softmax(0)",
    "a wrong dim",
    "Your softmax runs over the tokens: it belongs over the experts of one token.",
)
_change(
    "worst_experts",
    "scores.topk(k, -1)",
    "scores.topk(k, -1, largest=False)",
    "plausible",
    "You took the k smallest scores.",
)
_change(
    "worst_first",
    "return experts, weights",
    "return experts.flip(-1), weights.flip(-1)",
    "torch.argsort, ascending",
    "Your experts are the right ones in the wrong order: the best comes first.",
)
_change(
    "weights_are_logits",
    "weights, experts = scores.topk(k, -1)",
    "weights, experts = logits.topk(k, -1)",
    "plausible",
    "Your weights are made of logits: take the softmax first.",
)
_change(
    "weights_of_the_first_k",
    "return experts, weights",
    "return experts, (scores[:, :k] / (scores[:, :k].sum(-1, True) if normalize else 1))",
    "plausible",
    "Your weights are those of experts 0 to k − 1, not of the chosen ones.",
)
_change(
    "equal_weights",
    "weights, experts = scores.topk(k, -1)",
    "weights, experts = torch.full((len(logits), k), 1 / k), scores.topk(k, -1).indices",
    "plausible",
    "All your weights are 1/k: an expert's weight is its score.",
)
_change(
    "overflows",
    "logits.softmax(-1)",
    "logits.exp() / logits.exp().sum(-1, True)",
    "softmax written as exp over sum",
    "Large logits overflow in the exponential: subtract each token's largest logit first, as"
    " torch.softmax does.",
)
_change(
    "overflows_in_float64",
    "logits.softmax(-1)",
    "(logits.double().exp() / logits.double().exp().sum(-1, True)).float()",
    "softmax written as exp over sum",
    "In float64 the exponential overflows as well, beyond 709: subtract each token's largest logit"
    " first, as torch.softmax does.",
)


def logits_of(rng: random.Random, n: int, E: int, spread: float = 1.0) -> Tensor:
    """[n, E], float32, no two of a row nearer than 0.02·spread: which experts are best is beyond
    rounding."""
    rows = [rng.sample(range(3 * E + 60), E) for _ in range(n)]
    return torch.tensor(rows, dtype=torch.float32) * 0.02 * spread - 0.5


# a token's three largest lie 14 apart: their scores are the same however a logit of some thousands
# is rounded
LARGE = torch.tensor([[3000.0, -4000.0, 2986.0, 2972.0], [-4028.0, -4000.0, -9000.0, -4014.0]])

NEARLY_FLAT = torch.arange(edges.past(1024)).flip(0)[None] * 1e-4  # the best score is a thousandth


def cases(rng: random.Random) -> list[Case]:
    """One token; several; k from 1 to E; one expert; wide logits and large ones; more tokens and
    experts than any constant; nearly equal scores; both ways each."""

    def case(n: int, E: int, k: int, spread: float = 1.0, public: bool = True) -> list[Case]:
        made = logits_of(rng, n, E, spread)
        best = made.softmax(-1).sort(-1, descending=True).values[:, : k + 1]
        assert (best.diff(dim=-1) < 0).all()  # nor are two scores equal that decide who is chosen
        return [
            Case(f"{n} tokens, k={k} of E={E}, normalize={way}", (made, k, way), public=public)
            for way in (True, False)
        ]

    same = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    return [
        Case("by hand, normalized", (same, 2, True)),
        Case("by hand, as they are", (same, 2, False)),
        Case("by hand, the best alone, as it is", (same, 1, False)),
        *case(1, 4, 2),
        *case(3, 4, 1),
        *case(3, 8, 2),
        *case(5, 6, 6),
        *case(4, 1, 1),
        *case(4, 9, 3, 40.0),
        *case(edges.past(2048), 3, 2),
        Case("logits near 100", (logits_of(rng, 3, 6) + 100, 2, False)),
        Case("logits near −200", (logits_of(rng, 3, 6) - 200, 2, False)),
        Case("logits of some thousands, normalized", (LARGE, 2, True)),
        Case("logits of some thousands, as they are", (LARGE, 2, False)),
        *case(2, edges.past(512), edges.past(256)),
        *case(1, edges.past(2053), edges.past(2048), 0.05),
        Case("nearly flat, the best alone, normalized", (NEARLY_FLAT, 1, True)),
        *case(rng.randrange(2, 7), rng.randrange(5, 12), rng.randrange(2, 5), 3.0, public=False),
    ]


EXERCISE = Exercise(
    id="mixture_of_experts-route",
    title="A router",
    kind="kernel",
    points=3,
    minutes=12,
    entries=("route",),
    cases=cases,
    reference=reference,
    compare=Tolerance(
        rtol=1e-5, atol=1e-7, dtype=True, why="a softmax in fp32, its sums in another order"
    ),
    misconceptions=tuple(wrong),
    hints=(
        "One softmax over the experts of each token, then the k largest of each row.",
        "scores.topk(k, dim=-1) gives values and indices, the largest first.",
        "With normalize, divide each row of values by its own sum (keepdim=True).",
    ),
    recall=(
        "Softmax over all experts and then top-k with renormalizing, or top-k of the logits and"
        " then softmax: what is the difference?",
        "None: both are exp(logit) over the sum of exp of the k chosen logits.",
    ),
)
