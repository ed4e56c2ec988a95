"""pruning-predict: parameters, bytes and step time of what is left."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks.compare import FORMULA
from twophase.checks.edges import one_changed, past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Sizes = dict[str, int]


def reference(
    model: Sizes, kept: Sizes, B: int, S: int, bytes_per_number: int, bytes_per_s: float
) -> dict[str, float]:
    """The right answer."""
    G = model["N"] // model["K"]
    m = {**model, **kept}
    attention = 2 * m["D"] * m["K"] * (G + 1) * m["H"]
    params = m["V"] * m["D"] + m["L"] * (attention + 3 * m["D"] * m["F"])
    cache = B * S * 2 * m["L"] * m["K"] * m["H"] * bytes_per_number
    weights = params * bytes_per_number
    return {"params": params, "bytes": weights, "step_s": (weights + cache) / bytes_per_s}


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "query_heads_stay",
    {'m["K"] * (G + 1) * m["H"]': '(m["K"] + m["N"]) * m["H"]'},
    "plausible",
    "With a KV head go the query heads that read it, with their rows and their columns.",
)
_add(
    "embedding_stays_wide",
    {'m["V"] * m["D"] +': 'm["V"] * model["D"] +'},
    "plausible",
    "The embedding has as many columns as the stream has numbers: it gets narrower, too.",
)
_add(
    "cache_of_the_whole_model",
    {'2 * m["L"] * m["K"]': '2 * model["L"] * model["K"]'},
    "plausible",
    "The cache holds only the layers and KV heads that are left.",
)
_add(
    "cache_left_out",
    {"(weights + cache) / bytes_per_s": "weights / bytes_per_s"},
    "plausible",
    "A step reads the caches of all sequences as well as the weights.",
)
_add(
    "embedding_left_out",
    {'m["V"] * m["D"] + ': ""},
    "counts without the embedding",
    "The embedding is a matrix like the others, and as the head it is read in every step.",
)
_add(
    "narrower_heads",
    {"m = {**model, **kept}": 'm = {**model, **kept}\n    m["H"] = m["H"] * m["D"] // model["D"]'},
    "head_dim = hidden_size / heads",
    "Heads are as wide as before: only the stream is narrower.",
)
_add(
    "by_share",
    {
        'm["V"] * m["D"] + m["L"] * (attention + 3 * m["D"] * m["F"])': (
            'round((model["V"] * model["D"] + model["L"] * (2 * model["D"] * model["K"] * (G + 1)'
            ' * m["H"] + 3 * model["D"] * model["F"])) * (m["L"] / model["L"]) * (m["D"] /'
            ' model["D"]))'
        )
    },
    "“half the layers, half the parameters”",
    "You scale all parameters alike. The embedding has no layers, and heads and channels go by"
    " themselves.",
)
_add(
    "one_cache",
    {"B * S * 2": "S * 2"},
    "plausible",
    "You count one sequence's cache: a step reads those of all B.",
)

LLAMA = {"L": 32, "D": 4096, "F": 14336, "N": 32, "K": 8, "H": 128, "V": 128256}
SMALL = {"L": 4, "D": 192, "F": 512, "N": 6, "K": 2, "H": 32, "V": 256}
ODD = {"L": 5, "D": 60, "F": 77, "N": 12, "K": 3, "H": 7, "V": 300}


def _fresh(rng: random.Random) -> tuple[Any, ...]:
    K, G = rng.randrange(2, 9), rng.randrange(1, 5)
    model = {
        "L": rng.randrange(4, 40),
        "D": 64 * rng.randrange(4, 40),
        "F": 64 * rng.randrange(8, 99),
        "N": K * G,
        "K": K,
        "H": 64,
        "V": 32000,
    }
    kept = {name: rng.randrange(1, model[name]) for name in ("L", "K", "F", "D")}
    for name in rng.sample(sorted(kept), rng.randrange(3)):
        del kept[name]
    return model, kept, rng.choice((1, 16)), rng.randrange(1, 9000), rng.choice((1, 2, 4)), 1e12


def cases(rng: random.Random) -> list[Case]:
    """Each thing that may go, alone and together; no text and a long one, one sequence and many,
    numbers of every width; nothing gone, and all of a kind."""
    run = 1, 4096, 2, 3.35e12
    many = 64, 4096, 2, 3.35e12
    narrower = ODD, {"D": 41}, 3, 11, 2, 1e9
    made = [
        ("half the layers of an 8B", LLAMA, {"L": 16}, *run),
        ("half its KV heads", LLAMA, {"K": 4}, *run),
        ("half its channels", LLAMA, {"F": 7168}, *run),
        ("a narrower stream", LLAMA, {"D": 3072}, *run),
        ("everything at once", LLAMA, {"L": 24, "K": 6, "F": 9216, "D": 3072}, *run),
        ("nothing goes", LLAMA, {}, *run),
        ("half the layers, 64 sequences", LLAMA, {"L": 16}, *many),
        ("half the KV heads, 64 sequences", LLAMA, {"K": 4}, *many),
        ("a narrower stream, 64 sequences", LLAMA, {"D": 3072}, *many),
        ("one KV head of a small model", SMALL, {"K": 1}, 2, 100, 4, 1e10),
        ("one layer of it", SMALL, {"L": 1}, 2, 100, 1, 1e10),
        ("one layer of a narrower one", {**SMALL, "D": 96}, {"L": 1}, 2, 100, 1, 1e10),
        ("one layer, a longer text", SMALL, {"L": 1}, 2, 300, 1, 1e10),
        ("one layer, numbers of 2 bytes", SMALL, {"L": 1}, 2, 100, 2, 1e10),
        ("one layer, read faster", SMALL, {"L": 1}, 2, 100, 1, 3e10),
        ("an 8B without its MLPs", LLAMA, {"F": 0}, *run),
        ("no layer of a small one", SMALL, {"L": 0}, 2, 100, 2, 1e10),
        ("no text yet", SMALL, {"F": 256}, 4, 0, 2, 1e10),
        ("sizes like no others", ODD, {"L": 3, "K": 2, "F": 50, "D": 41}, 3, 11, 2, 1e9),
        ("a stream like no others", *narrower),
        # whoever keeps results by some of the sizes is wrong here
        *(
            (f"the same {but}", sizes, *narrower[1:])
            for but, sizes in one_changed(ODD, L=6, F=78, N=15, K=4, H=8, V=301)
        ),
        # 15 / 22 * 22 and 90 * (7 / 10), as floats, are a little less than 15 and 63
        ("15 of 22 heads", {**ODD, "N": 22, "K": 22}, {"K": 15}, 3, 11, 2, 1e9),
        ("7 of 10 KV heads, nine readers each", {**ODD, "N": 90, "K": 10}, {"K": 7}, 3, 11, 2, 1e9),
        ("channels like no others", ODD, {"F": 1}, 3, 11, 2, 1e9),
        ("a long text", ODD, {"K": 1}, 1, past(2048), 2, 1e9),
        ("many sequences", ODD, {"K": 1}, past(2048), 5, 2, 1e9),
    ]
    fresh = [(f"fresh {i + 1}", *_fresh(rng)) for i in range(5)]
    return [
        Case(name, tuple(args), public=name < "fresh 3" or not name.startswith("fresh"))
        for name, *args in [*made, *fresh]
    ]


EXERCISE = Exercise(
    id="pruning-predict",
    title="Predict what is left",
    kind="predict",
    points=3,
    minutes=15,
    entries=("after",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "Write the parameters of the whole model first. Which letters change with what is cut?",
        (
            "Attention of a layer: 2·D·(N + K)·H, and N shrinks with K: N = K·G with the old G."
            " MLP: 3·D·F. Embedding: V·D."
        ),
        "A step reads the weights once and B·S·2·L·K·H numbers of the caches.",
    ),
    recall=(
        "A third of a model's channels go. Does a step at batch 64 and long texts get a third"
        " quicker?",
        "No: attention, embedding and above all the caches are read as before.",
    ),
    ranges={"bytes_per_number": (1, 4)},
)
