"""mixture_of_experts-biased: a bias that balances the load gets into the weights; exposed, hidden
and repaired."""

from __future__ import annotations

import random
from typing import Any

import torch

from twophase.checks import edges
from twophase.checks.answer import Answer
from twophase.checks.compare import Tolerance, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.checks.mixture_of_experts import _biased_routing as made

wrong = Misconceptions()

Tensor = torch.Tensor
Input = dict[str, Any]


def biased_route(logits: Tensor, bias: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The right answer: the bias chooses, the score weighs."""
    scores = logits.sigmoid()  # [tokens, E]
    experts = (scores + bias).topk(k, -1).indices  # [tokens, k]
    weights = scores.gather(-1, experts)
    return experts, weights / weights.sum(-1, True)


def expose() -> list[Input]:
    """The right answer (one of many)."""
    return [{"logits": [[2.0, 1.0, 0.0]], "bias": [0.0, 0.5, 0.0], "k": 2}]


def harmless() -> Input:
    """The right answer (one of many): only an expert that stays out has a bias."""
    return {"logits": [[2.0, 1.0, 0.0]], "bias": [-0.8, 0.0, 0.0], "k": 2}


@wrong(
    "checkpoints whose bias was never moved",
    "The biases of your inputs are all 0: then both codes are one.",
    entry="expose",
)
def exposed_without_a_bias() -> list[Input]:
    return [{"logits": [[2.0, 1.0, 0.0]], "bias": [0.0, 0.0, 0.0], "k": 2}]


@wrong(
    "plausible",
    "Your inputs have k = 1, which the contract excludes: a single weight is 1 whatever it was"
    " made of.",
    entry="expose",
)
def exposed_with_one_expert() -> list[Input]:
    return [{"logits": [[2.0, 1.0, 0.0]], "bias": [0.0, 0.9, 0.0], "k": 1}]


@wrong(
    "plausible",
    "In your inputs only experts that are not chosen have a bias: no weight is touched.",
    entry="expose",
)
def exposed_by_an_expert_that_stays_out() -> list[Input]:
    return [{"logits": [[2.0, 1.0, 0.0]], "bias": [-0.8, 0.0, 0.0], "k": 2}]


@wrong(
    "plausible",
    "Your harmless input has no bias at all: show one whose bias changes who is chosen.",
    entry="harmless",
)
def harmless_without_a_bias() -> Input:
    return {"logits": [[2.0, 1.0, 0.0]], "bias": [0.0, 0.0, 0.0], "k": 2}


@wrong(
    "plausible",
    "The bias of your harmless input changes nobody's choice: without it the same experts would be"
    " chosen.",
    entry="harmless",
)
def harmless_because_it_decides_nothing() -> Input:
    return {"logits": [[2.0, 1.0, 0.0]], "bias": [0.0, 0.0, -0.3], "k": 2}


@wrong(
    "“the same for all cancels”",
    "A bias that is the same for all the chosen does not cancel in the weights: (s + b) / Σ(s + b)"
    " is not s / Σ s.",
    entry="harmless",
)
def harmless_by_equal_biases() -> Input:
    return {"logits": [[2.0, 1.0, 0.0]], "bias": [-0.5, 0.4, 0.4], "k": 2}


@wrong(
    "plausible",
    "Your harmless input has k = 1, which the contract excludes.",
    entry="harmless",
)
def harmless_with_one_expert() -> Input:
    return {"logits": [[2.0, 1.0, 0.0]], "bias": [-0.8, 0.0, 0.0], "k": 1}


def _repair(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, {"biased_route": replaced(biased_route, parts)}, seen, says)


_repair(
    "unrepaired",
    {"scores.gather": "(scores + bias).gather"},
    "routers that add the bias in place",
    "The bias is still in the weights: take them from the scores without it.",
)
_repair(
    "bias_dropped",
    {"(scores + bias).topk": "scores.topk"},
    "plausible",
    "You dropped the bias: it has to choose the experts, and only there.",
)
_repair(
    "bias_inside_the_sigmoid",
    {"(scores + bias).topk": "(logits + bias).sigmoid().topk"},
    "plausible",
    "You added the bias to the logits. It is added to the scores, after the sigmoid.",
)
_repair(
    "not_normalized",
    {"return experts, weights / weights.sum(-1, True)": "return experts, weights"},
    "plausible",
    "The k weights of a token must sum to 1: divide by their sum.",
)
_repair(
    "divided_by_all_scores",
    {"weights / weights.sum(-1, True)": "weights / scores.sum(-1, True)"},
    "plausible",
    "You divided by the sum of all scores: divide by that of the k chosen ones.",
)
_repair(
    "softmax_of_the_chosen",
    {"scores.gather(-1, experts)": "logits.gather(-1, experts).softmax(-1)"},
    "Mixtral's router",
    "Your weights are a softmax. This router's scores are sigmoids, divided by their sum.",
)


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """Whether `expose` shows the fault, whether `harmless` hides it, or the repaired routing."""
    if case.args[0] == "expose":
        return _exposes(plain(answer.call("expose")))
    if case.args[0] == "harmless":
        return _hides(plain(answer.call("harmless")))
    return {"experts and weights": answer.call("biased_route", *case.args)}


EXPOSED = ("the inputs", "there is a bias", "a chosen expert has a bias", "one shows it")
HIDDEN = (
    "the input",
    "there is a bias",
    "the bias changes who is chosen",
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
        "there is a bias": any(bool(bias.any()) for _, bias, _ in given),
        "a chosen expert has a bias": any(
            bool(bias[made.right(logits, bias, k)[0]].any()) for logits, bias, k in given
        ),
        "one shows it": any(made.apart(x) >= 0.01 for x in given),
    }


def _hides(found: Any) -> dict[str, Any]:
    if said := made.problem(found):
        return _invalid(HIDDEN, said)
    given = made.tensors(found)
    return {
        "the input": "valid",
        "there is a bias": bool(given[1].any()),
        "the bias changes who is chosen": made.bias_decides(given),
        "the printed code is right": made.apart(given) <= 1e-4,
    }


def cases(rng: random.Random) -> list[Case]:
    """The two inputs, then the repaired function: one token, several, k from 1 to E, more tokens
    and experts than any constant."""

    def case(n: int, E: int, k: int, public: bool = True) -> Case:
        while True:  # until no two scores of a token are near, so that rounding chooses nobody
            logits = torch.tensor([[rng.uniform(-3, 3) for _ in range(E)] for _ in range(n)])
            bias = torch.tensor([rng.uniform(-0.4, 0.4) for _ in range(E)])
            told = (
                (logits.sigmoid() + bias).topk(min(k + 1, E), -1).values,
                (logits + bias).topk(min(k + 1, E), -1).values,
                logits.sigmoid().topk(min(k + 1, E), -1).values,
            )
            if E == 1 or all(bool((t.diff(dim=-1).abs() > 1e-5).all()) for t in told):
                return Case(f"{n} tokens, k={k} of E={E}", (logits, bias, k), public=public)

    tilted = torch.tensor([[2.0, 1.0, 0.0], [-1.0, 0.5, 3.0]]), torch.tensor([-0.8, 0.1, 0.3])
    below = torch.tensor([[-2.0, -3.0, -4.0, 1.0]]), torch.tensor([-1.0, -0.9, -0.7, -0.95])
    # sums of 0.75 + 2⁻²⁴ and 0.75 + 2⁻²³, the first and the second number after it in float32
    near = torch.zeros(1, 3), torch.tensor([0.25 + 2.0**-24, 0.25 + 2.0**-23, -0.5])
    tiny = torch.tensor([[-9.0, -8.0, -10.0, -7.0]]), torch.tensor([0.0, 0.0, 0.0, -0.5])
    # of the numbers of float32, not of those of an input: sigmoids of 1, and of less than 1e-6
    far = {
        "to 100": [0.0, 100.0, -1.0],
        "below −10": [-14.0, -11.0, -15.0],
        "below −20": [-22.0, -23.0, -30.0],
    }
    shift = torch.tensor([0.1, 0.2, -0.9])
    return [
        Case("inputs that show the fault", ("expose",)),
        Case("an input that hides it", ("harmless",)),
        Case("two tokens, a strong bias", (*tilted, 2)),
        Case("one expert each", (*tilted, 1)),
        Case("all sums below 0", (*below, 2)),
        Case("the same, other logits", (torch.tensor([[-1.0, -3.0, 0.0, 2.0]]), below[1], 2)),
        Case("the same, another bias", (below[0], tiny[1], 2)),
        Case("tiny sigmoids", (*tiny, 2)),
        Case("sums as near as float32 has them", (*near, 2)),
        *(Case(f"logits {name}", (torch.tensor([row]), shift, 2)) for name, row in far.items()),
        case(1, 4, 2),
        case(3, 6, 3),
        case(5, 4, 4),
        case(2, 1, 1),
        case(edges.past(256), 3, 2),
        case(2, edges.past(64), 7),
        case(1, edges.past(256), 3),
        case(rng.randrange(2, 6), rng.randrange(5, 9), 3, public=False),
    ]


EXERCISE = Exercise(
    id="mixture_of_experts-biased",
    title="A bias in the wrong place",
    kind="fault",
    points=5,
    minutes=20,
    entries=("expose", "harmless", "biased_route"),
    cases=cases,
    observe=observe,
    reference={"expose": expose, "harmless": harmless, "biased_route": biased_route},
    compare=Tolerance(
        rtol=1e-5, atol=1e-6, dtype=True, why="sigmoids in fp32; a wrong weight misses by 0.001"
    ),
    misconceptions=tuple(wrong),
    hints=(
        "Which line uses the bias for more than the choice?",
        (
            "Harmless: an expert may have a bias that keeps it out, as long as no chosen one has"
            " any."
        ),
        "Repair: choose by scores + bias, then gather the weights from scores alone.",
    ),
    recall=(
        "What does DeepSeek-V3's bias change, and what not?",
        "Which experts are chosen; not what the chosen ones weigh.",
    ),
)
