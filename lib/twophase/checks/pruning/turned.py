"""pruning-turned: how far each layer turns the stream, one minus the cosine of before and after."""

from __future__ import annotations

import random
from itertools import pairwise

import torch

from twophase.checks.answer import Answer
from twophase.checks.compare import Tolerance, plain
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.protocol import AnswerError

wrong = Misconceptions()

Tensor = torch.Tensor


def reference(streams: list[Tensor]) -> list[float]:
    """The right answer."""
    found = []
    for before, after in pairwise(streams):
        x, y = before.double(), after.double()
        cosine = (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))  # [tokens]
        found.append(float(1 - cosine.mean()))
    return found


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


LENGTHS = " / (x.norm(dim=-1) * y.norm(dim=-1))"
_add(
    "the_cosine_itself",
    {"1 - cosine.mean()": "cosine.mean()"},
    "cosine similarity taken for importance",
    "You return the cosine: it is large where a layer does little. How far it turns is one minus"
    " that.",
)
_add(
    "not_divided_by_the_lengths",
    {LENGTHS: ""},
    "dot product taken for the cosine",
    "You multiply rows and sum: a cosine is that over the product of both lengths.",
)
_add(
    "divided_by_one_length",
    {LENGTHS: " / x.norm(dim=-1) ** 2"},
    "plausible",
    "You divide twice by the length before the layer: the row after it has a length of its own.",
)
_add(
    "what_it_adds",
    {"before.double(), after.double()": "before.double(), after.double() - before.double()"},
    "the layer's own output compared with its input",
    "You compare the stream with what the layer adds to it. Compare it with the sum, the stream as"
    " it goes on.",
)
_add(
    "how_much_it_adds",
    {
        "(x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))": (
            "1 - (y - x).norm(dim=-1) / x.norm(dim=-1)"
        )
    },
    "plausible",
    "You measure how long what is added is. A layer that makes the stream longer without turning it"
    " has a cosine of 1.",
)
_add(
    "of_mean_rows",
    {
        "before.double(), after.double()": (
            "before.double().mean(0, keepdim=True), after.double().mean(0, keepdim=True)"
        )
    },
    "plausible",
    "You averaged the rows first: what turns to the left in one token and to the right in another"
    " is lost so. Average the cosines.",
)
_add(
    "all_tokens_as_one_row",
    {
        "before.double(), after.double()": (
            "before.double().reshape(1, -1), after.double().reshape(1, -1)"
        )
    },
    "cosine of flattened tensors",
    "You took all tokens for one long vector: then long rows weigh more. A cosine for each token,"
    " and the mean of these.",
)
_add(
    "down_the_columns",
    {"(x * y).sum(-1)": "(x * y).sum(0)", LENGTHS: " / (x.norm(dim=0) * y.norm(dim=0))"},
    "dim=0 for dim=-1",
    "Your cosines go over the tokens, one for each number of the stream: take them along a token's"
    " row.",
)
_add(
    "from_the_first_stream",
    {"pairwise(streams)": "zip([streams[0]] * len(streams), streams[1:])"},
    "plausible",
    "You compare each stream with the first one: a layer is given what the layer before it left.",
)
_add(
    "last_token_only",
    {"cosine.mean()": "cosine[-1]"},
    "plausible",
    "You look at the last token only: average over all.",
)
_add(
    "sign_left_out",
    {"cosine.mean()": "cosine.abs().mean()"},
    "plausible",
    "A cosine below 0 is a stream turned by more than a right angle: its sign counts.",
)
_add(
    "the_angle",
    {"1 - cosine.mean()": "cosine.clamp(-1, 1).acos().mean() / torch.pi"},
    "plausible",
    "You return the angle. The task wants one minus its cosine.",
)
_add(
    "squared",
    {"1 - cosine.mean()": "1 - (cosine**2).mean()"},
    "plausible",
    "You squared the cosine.",
)
_add(
    "a_little_added_to_the_lengths",
    {LENGTHS: LENGTHS[:-1] + " + 1e-8)"},
    "“+ 1e-8, against a division by 0”",
    "You add 1e-8 to the product of the lengths: two rows of 0.001 have a product of 1e-6, and"
    " seem turned by a hundredth. No row is shorter: nothing need be added.",
)
_add(
    "in_sixteen_bits",
    {"before.double(), after.double()": "before, after"},
    "statistics taken in a model's own dtype",
    "You compute in the dtype of the streams: in 16 bits a cosine near 1 has two or three digits,"
    " and lengths overflow. Convert first.",
)


def observe(answer: Answer, case: Case) -> list[float]:
    """The numbers, as floats."""
    found = plain(answer.call("turned", *case.args))
    if not isinstance(found, list) or any(type(x) not in (int, float) for x in found):
        raise AnswerError("unusable", "turned must return a list, a number for each layer")
    return [float(x) for x in found]


SHORTEST = 0.001  # of a row, as the task promises; cosine_similarity divides by 1e-8 at least


def _case(
    rng: random.Random,
    name: str,
    layers: int,
    tokens: int,
    D: int,
    step: float = 0.5,
    size: float = 1.0,
    dtype: torch.dtype = torch.float32,
    public: bool = True,
) -> Case:
    """A stream of rows of any length, to which each layer adds something about `step` as long."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    rows = torch.randn(tokens, D, generator=generator, dtype=torch.float64)
    rows = rows.sign() * (0.25 + rows.abs())
    streams = [rows * torch.linspace(0.5, 2.0, tokens, dtype=torch.float64)[:, None]]
    for _ in range(layers):
        new = torch.randn(tokens, D, generator=generator, dtype=torch.float64)
        lengths = streams[-1].norm(dim=-1, keepdim=True) / new.norm(dim=-1, keepdim=True)
        streams.append(streams[-1] + step * lengths * new)
    assert all(bool((s.norm(dim=-1) > SHORTEST).all()) for s in streams)
    return Case(name, ([(size * s).to(dtype) for s in streams],), public=public)


def cases(rng: random.Random) -> list[Case]:
    """Nothing added, longer and shorter, turned by a right angle and more; tokens that turn in
    opposite ways, rows of very different lengths; one of each size, and more than any table; 16
    bits."""
    fixed = random.Random(13)
    one = torch.tensor([[3.0, 4.0]])
    two = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    left, right = torch.tensor([[3.0, 4.0], [3.0, 4.0]]), torch.tensor([[5.0, 0.0], [-1.4, 4.8]])
    long_and_short = torch.tensor([[100.0, 0.0], [0.0, 1.0]])
    return [
        Case("one token, one layer that adds nothing", ([one, one.clone()],)),
        Case("a layer that makes the stream twice as long", ([one, 2 * one],)),
        Case("a right angle", ([one, torch.tensor([[-4.0, 3.0]])],)),
        Case("the other way round", ([one, -one],)),
        Case("one token turned, one not", ([two, torch.tensor([[0.0, 1.0], [0.0, 2.0]])],)),
        Case("one turned to the left, one to the right", ([left, right],)),
        Case(
            "a short row turns, a long one does not",
            ([long_and_short, torch.tensor([[100.0, 0.0], [1.0, 0.0]])],),
        ),
        Case("two layers, the second turns it back", ([two, two.flip(0), two.clone()],)),
        Case("short rows", ([one / 50, one.flip(1) / 50],)),
        Case("rows of 0.001 and 0.002", ([two / 1000, (two + two.flip(1)) / 1000],)),
        # the product of both squared lengths is beyond float32, that of the lengths is not
        Case("rows of 1e10", ([1e10 * torch.ones(1, 4), 1e10 * torch.tensor([[1.0, 1, -1, 1]])],)),
        Case("no layer", ([one],)),
        _case(fixed, "three layers, four tokens", 3, 4, 5),
        _case(fixed, "layers that add much", 3, 4, 8, step=3.0),
        _case(fixed, "layers that add a hundredth", 3, 5, 8, step=0.01),
        _case(fixed, "one number in the stream", 2, 3, 1, step=1.5),
        _case(fixed, "one token", 2, 1, 6),
        _case(fixed, "bfloat16", 3, 6, 16, step=0.1, dtype=torch.bfloat16),
        _case(fixed, "float16, numbers in the hundreds", 2, 4, 16, 0.3, 300.0, torch.float16),
        _case(fixed, "float64", 2, 3, 4, dtype=torch.float64),
        _case(fixed, "257 layers", past(256), 2, 3),
        _case(fixed, "521 tokens", 1, past(512), 3),
        _case(fixed, "257 numbers in the stream", 2, 3, past(256)),
        _case(rng, "fresh 1", rng.randrange(2, 6), rng.randrange(2, 8), rng.randrange(2, 9)),
        _case(rng, "fresh 2", 4, 7, 5, step=rng.uniform(0.2, 2.0), public=False),
    ]


EXERCISE = Exercise(
    id="pruning-turned",
    title="How far a layer turns the stream",
    kind="kernel",
    points=3,
    minutes=12,
    entries=("turned",),
    cases=cases,
    reference=reference,
    observe=observe,
    compare=Tolerance(rtol=0.0, atol=1e-5, why="a cosine near 1 in float32, 521 of them averaged"),
    misconceptions=tuple(wrong),
    hints=(
        "A layer is given one stream and leaves the next: which pairs of the list are these?",
        "For each token: the sum of the products of both rows, over the product of their lengths.",
        (
            "Convert to float64; (x * y).sum(−1) / (x.norm(dim=−1) * y.norm(dim=−1)); one minus the"
            " mean over tokens."
        ),
    ),
    recall=(
        "A layer makes the stream twice as long and does nothing else. What is its influence by the"
        " cosine?",
        "0: it is not turned at all. (The next norm takes the length away.)",
    ),
)
