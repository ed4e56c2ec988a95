"""pruning-two_four: two of each four weights stay, by Wanda's score."""

from __future__ import annotations

import random
from itertools import combinations

import torch

from twophase.checks.compare import EXACT
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor


def reference(weight: Tensor, input_norms: Tensor) -> Tensor:
    """The right answer."""
    scores = weight.abs() * input_norms  # [O, I]
    fours = scores.reshape(-1, 4)  # [O·I/4, 4]
    best = fours.topk(2, dim=-1).indices  # [O·I/4, 2]
    mask = torch.zeros(fours.shape, dtype=torch.bool).scatter(-1, best, True)
    return mask.reshape(weight.shape)  # [O, I]


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "inputs_ignored",
    {"weight.abs() * input_norms": "weight.abs()"},
    "magnitude pruning",
    "You score by the weight alone: a small weight on a large input may matter more. |w| times the"
    " input's length.",
)
_add(
    "signed",
    {"weight.abs()": "weight"},
    "plausible",
    "A large negative weight matters as much as a positive one: take absolute values.",
)
_add(
    "smallest_kept",
    {"topk(2, dim=-1)": "topk(2, dim=-1, largest=False)"},
    "plausible",
    "You keep the two smallest of each four: True means that a weight stays.",
)
_add(
    "half_of_the_row",
    {
        "reshape(-1, 4)": "reshape(weight.shape)",
        "topk(2, dim=-1)": "topk(weight.shape[-1] // 2, dim=-1)",
    },
    "unstructured sparsity of one half",
    "You keep half of each row, wherever. The hardware wants two of each four neighbors.",
)
_add(
    "down_the_columns",
    {
        "scores.reshape(-1, 4)": "scores.T.reshape(-1, 4)",
        "mask.reshape(weight.shape)": "mask.reshape(weight.T.shape).T.contiguous()",
    },
    "plausible",
    "Your fours go down a column. Neighbors stand in one row: they meet different inputs of one"
    " output.",
)
_add(
    "every_quarter",
    {
        "scores.reshape(-1, 4)": "scores.reshape(len(scores), 4, -1).mT.reshape(-1, 4)",
        "mask.reshape(weight.shape)": "mask.reshape(len(scores), -1, 4).mT.reshape(weight.shape)",
    },
    "view(O, 4, I/4) for view(O, I/4, 4)",
    "Your fours are a quarter of a row apart: four neighbors belong together.",
)
_add(
    "squared_inputs",
    {"weight.abs() * input_norms": "weight.abs() * input_norms**2"},
    "plausible",
    "You squared the inputs' lengths, but not the weights.",
)
_add(
    "one_of_four",
    {"topk(2, dim=-1)": "topk(1, dim=-1)"},
    "plausible",
    "Two of each four stay, not one.",
)


def _case(
    rng: random.Random, O: int, I: int, public: bool = True, dtype: torch.dtype = torch.float32
) -> Case:
    """No two scores of a four are alike."""
    while True:
        generator = torch.Generator().manual_seed(rng.randrange(2**31))
        weight = torch.randn(O, I, generator=generator).to(dtype)
        norms = (torch.rand(I, generator=generator) * 3 + 0.05).to(dtype)
        steps = (weight.double().abs() * norms.double()).reshape(-1, 4).sort(-1).values.diff(dim=-1)
        if float(steps.min()) > 1e-6:
            name = f"O={O}, I={I}, {str(dtype)[6:]}"
            return Case(name, (weight, norms), public=public)


def cases(rng: random.Random) -> list[Case]:
    """One four and many; the inputs decide, and do not; an input that is always 0; scores and
    inputs of any size, and nearly alike; each width like
    no other."""
    fixed = random.Random(13)
    four = torch.tensor([[1.0, -2.0, 3.0, -4.0]])
    turned = torch.tensor([9.0, 3.0, 1.0, 0.5])
    tiny = torch.tensor([[1e-6, -3e-6, 2e-6, -4e-6, 5e6, 1e6, -2e6, 3e6]])
    near = [[i in best for i in range(4)] for best in combinations(range(4), 2)]
    alike = torch.tensor(near, dtype=torch.float64).reshape(2, 12)
    alike += torch.arange(4, dtype=torch.float64).repeat(3) / 8
    short = torch.tensor([1e-4, 4e-5, 2e-5, 1e-5, 1e4, 4e3, 2e3, 1e3])
    return [
        Case("one four, equal inputs", (four, torch.ones(4))),
        Case("the same four the other way round", (four.flip(1), torch.ones(4))),
        Case("one four, the small weights meet large inputs", (four, turned)),
        Case("an input that is always 0", (four, torch.tensor([1.0, 1.0, 1.0, 0.0]))),
        Case("weights of any size", (tiny, torch.ones(8))),
        Case("inputs of any length", (four.repeat(1, 2), short)),
        Case("weights below 1e-24", (1e-25 * (1 + alike).float(), torch.ones(12))),
        Case("weights beyond 1e24", (1e25 * (1 + alike).float(), torch.ones(12))),
        Case("inputs below 1e-24", (torch.ones(1, 24), 1e-25 * (1 + alike).float().flatten())),
        Case("scores nearly alike", ((1 + alike / 1e4).float(), torch.ones(12))),
        Case("alike in float32", (1 + alike / 1e9, torch.ones(12, dtype=torch.float64))),
        Case(
            "the same four twice, other inputs",
            (four.repeat(1, 2), torch.cat([torch.ones(4), turned])),
        ),
        _case(fixed, 1, 8),
        _case(fixed, 3, 4),
        _case(fixed, 4, 12),
        _case(fixed, 5, 8),
        _case(fixed, 8, 16),
        _case(fixed, past(256), 4),
        _case(fixed, 2, 4 * past(64)),
        _case(fixed, 3, 8, dtype=torch.float64),
        _case(rng, 3, 12),
        _case(rng, rng.randrange(2, 7), 4 * rng.randrange(2, 6), public=False),
    ]


EXERCISE = Exercise(
    id="pruning-two_four",
    title="Two of each four",
    kind="kernel",
    points=3,
    minutes=12,
    entries=("two_four",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Scores first: |weight| times the length of its input, which stands in its column.",
        "Neighbors in a row: scores.reshape(−1, 4) has a row for each four.",
        "topk(2, −1).indices of these, scattered as True into zeros, reshaped back.",
    ),
    recall=(
        "What does 2:4 sparsity ask of a matrix, and why not simply half of the weights?",
        "Two zeros in each four neighbors of a row: so every unit skips the same amount of work.",
    ),
)
