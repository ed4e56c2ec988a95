"""pruning-distill: the distillation loss: temperature, and the direction of KL."""

from __future__ import annotations

import math
import random

import torch

from twophase.checks.answer import Answer
from twophase.checks.compare import Tolerance
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.protocol import AnswerError

wrong = Misconceptions()

Tensor = torch.Tensor


def reference(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """The right answer."""
    taught = (teacher / temperature).log_softmax(-1)  # [tokens, V]
    said = (student / temperature).log_softmax(-1)  # [tokens, V]
    apart = (taught.exp() * (taught - said)).sum(-1)  # [tokens]
    return apart.mean() * temperature**2


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "other_direction",
    {"taught.exp() * (taught - said)": "said.exp() * (said - taught)"},
    "F.kl_div with its arguments exchanged",
    "You computed KL(student ‖ teacher). The teacher's probabilities are the weights: KL(teacher ‖"
    " student) = Σ t (log t − log s).",
)
_add(
    "square_left_out",
    {"apart.mean() * temperature**2": "apart.mean()"},
    "plausible",
    "The factor T² is missing: without it gradients shrink with the square of the temperature.",
)
_add(
    "not_squared",
    {"temperature**2": "temperature"},
    "plausible",
    "The factor is T², not T: both laws were softened.",
)
_add(
    "mean_over_the_vocabulary",
    {"apart.mean()": "(apart.mean() / student.shape[-1])"},
    "F.kl_div(reduction='mean')",
    "You took the mean over tokens and vocabulary. KL is a sum over the"
    " vocabulary; the mean is over"
    " tokens.",
)
_add(
    "summed_over_tokens",
    {"apart.mean()": "apart.sum()"},
    "F.kl_div(reduction='sum')",
    "You summed over tokens: the task wants their mean.",
)
_add(
    "cross_entropy",
    {"(taught - said)": "-said"},
    "soft cross entropy",
    "That is the cross entropy: the teacher's own entropy is still in it,"
    " and it is not 0 where both"
    " agree.",
)
_add(
    "student_not_softened",
    {"(student / temperature)": "student"},
    "plausible",
    "Both are divided by the temperature, the student as well.",
)
_add(
    "temperature_multiplied",
    {
        "(student / temperature)": "(student * temperature)",
        "(teacher / temperature)": "(teacher * temperature)",
    },
    "plausible",
    "Logits are divided by the temperature: a high one makes both laws flatter.",
)
_add(
    "likeliest_token_only",
    {"taught.exp() * (taught - said)": "-said * (taught == taught.amax(-1, keepdim=True))"},
    "hard labels",
    "You ask for the teacher's likeliest token only: what it thinks of all others is the lesson.",
)
_add(
    "logs_of_a_softmax",
    {
        "(teacher / temperature).log_softmax(-1)": "(teacher / temperature).softmax(-1).log()",
        "(student / temperature).log_softmax(-1)": "(student / temperature).softmax(-1).log()",
    },
    "softmax(...).log()",
    "Where a probability underflows its logarithm is −inf, and 0 times that is no number: use"
    " log_softmax.",
)


def observe(answer: Answer, case: Case) -> float:
    """The loss as a number."""
    found = answer.call("distillation_loss", *case.args)
    if math.prod(getattr(found, "shape", (0,))) == 1:  # of torch's or of numpy's
        found = found.item()
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise AnswerError("unusable", "distillation_loss must return one number or a tensor of one")
    return float(found)


def _case(
    rng: random.Random,
    name: str,
    tokens: int,
    V: int,
    temperature: float,
    size: float = 2.0,
    public: bool = True,
) -> Case:
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    student, teacher = (size * torch.randn(2, tokens, V, generator=generator)).unbind(0)
    return Case(name, (student, teacher, temperature), public=public)


def cases(rng: random.Random) -> list[Case]:
    """One token and many, temperatures from 0.5 to 20, logits that underflow and overflow a
    softmax, a student that is the teacher, a shift that changes nothing."""
    fixed = random.Random(13)
    one = torch.tensor([[1.0, -2.0, 0.5]]), torch.tensor([[0.0, 1.5, -1.0]])
    far = torch.tensor([[150.0, 0.0, -90.0], [0.0, 2.0, 1.0]])
    near = torch.tensor([[140.0, 10.0, -160.0], [1.0, 0.0, 2.0]])
    sure = torch.tensor([[0.0, 300.0], [-300.0, 0.0]])
    return [
        Case("one token, temperature 1", (*one, 1.0)),
        Case("one token, temperature 2", (*one, 2.0)),
        Case("one token, temperature 0.5", (*one, 0.5)),
        _case(fixed, "four tokens, temperature 1", 4, 5, 1.0),
        _case(fixed, "four tokens, temperature 4", 4, 5, 4.0),
        Case("the student is the teacher", (one[0], one[0] + 0.0, 2.0)),
        Case("the student is the teacher, all logits 3 higher", (one[0] + 3.0, one[0], 1.0)),
        Case("logits that underflow and overflow", (near, far, 1.0)),
        Case("a teacher that is certain", (torch.zeros(2, 2), sure, 1.0)),
        Case("logits of 1,000", (near + 1000.0, far - 1000.0, 2.0)),
        Case("logits of 1,000, temperature 0.5", (near + 1000.0, far - 1000.0, 0.5)),
        Case("a student that all but rules out what comes", (sure.flip(1) / 5, sure / 5, 1.0)),
        Case("a student that rules it out by far", (sure.flip(1) * 10, sure / 5, 1.0)),
        Case(
            "one token in the vocabulary",
            (torch.tensor([[3.0], [1.0]]), torch.tensor([[0.5], [2.0]]), 1.0),
        ),
        _case(fixed, "temperature 2.501", 3, 5, 2.501, 4.0),
        _case(fixed, "temperature 20", 3, 7, 20.0, 6.0),
        _case(fixed, "257 tokens", past(256), 3, 2.0),
        _case(fixed, "a vocabulary of 521", 3, past(512), 1.0),
        _case(rng, "fresh 1", 5, 6, 2.0),
        _case(rng, "fresh 2", 3, 9, rng.uniform(0.5, 5.0), public=False),
    ]


EXERCISE = Exercise(
    id="pruning-distill",
    title="What the teacher says of every token",
    kind="kernel",
    points=4,
    minutes=18,
    entries=("distillation_loss",),
    cases=cases,
    reference=reference,
    observe=observe,
    compare=Tolerance(
        rtol=1e-4, atol=1e-5, why="fp32; at temperature 20 its square makes 4e-6 of rounding"
    ),
    misconceptions=tuple(wrong),
    hints=(
        "Two laws for each token: the teacher's and the student's, both of logits / temperature.",
        "KL(teacher ‖ student) = Σ t (log t − log s) over the vocabulary: the teacher weighs.",
        (
            "log_softmax of both; (t.exp() * (t − s)).sum(−1) for each token; the mean of these"
            " times temperature²."
        ),
    ),
    recall=(
        "Which direction of KL punishes a student that gives no probability to what its teacher"
        " may say?",
        "KL(teacher ‖ student): the teacher's probabilities are the weights.",
    ),
    ranges={"temperature": (0.5, 20.0)},
)
