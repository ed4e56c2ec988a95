"""local_attention-receptive_field: how many tokens can matter to the last output of a stack."""

from __future__ import annotations

import random

from twophase.checks import edges
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

Windows = list[int | None]  # of each layer, first to last; None: it sees everything
MOST_LAYERS = 200


def reference(windows: Windows, S: int) -> int:
    """The right answer."""
    if None in windows:
        return S
    return min(S, 1 + sum(window - 1 for window in windows if window is not None))


def _local(windows: Windows) -> list[int]:
    return [window for window in windows if window is not None]


@wrong(
    "Mistral 7B paper, section 2: a theoretical span of W·L tokens",
    "You added the windows up. Each layer reaches window − 1 further back, since a window counts"
    " the query's own key.",
)
def windows_added(windows: Windows, S: int) -> int:
    return S if None in windows else min(S, sum(_local(windows)))


@wrong(
    "plausible",
    "The output's own token is missing: what can matter is that token and all that the layers reach"
    " back to.",
)
def own_token_left_out(windows: Windows, S: int) -> int:
    return reference(windows, S + 1) - 1


@wrong(
    "plausible",
    "You took the largest window. A key of layer 2 was computed from what layer 1 saw, so the"
    " layers' reaches add up.",
)
def largest_window(windows: Windows, S: int) -> int:
    return S if None in windows else min(S, max(_local(windows)))


@wrong(
    "plausible",
    "You took the last layer's window: what it sees was computed by the layers below, which saw"
    " further back.",
)
def last_window(windows: Windows, S: int) -> int:
    last = windows[-1]
    return S if last is None else min(S, last)


@wrong(
    "plausible",
    "There are only S tokens: the field ends at the beginning of the text.",
)
def longer_than_the_text(windows: Windows, S: int) -> int:
    return S if None in windows else 1 + sum(window - 1 for window in _local(windows))


@wrong(
    "hybrids described as a larger window",
    "A global layer makes all S tokens matter, wherever in the stack it stands: through it every"
    " token reaches every later one.",
)
def global_layers_left_out(windows: Windows, S: int) -> int:
    return min(S, 1 + sum(window - 1 for window in _local(windows)))


@wrong(
    "plausible",
    "A global layer below the last one counts as well: the layers above it read what it has"
    " gathered.",
)
def global_only_at_the_end(windows: Windows, S: int) -> int:
    return S if windows[-1] is None else global_layers_left_out(windows, S)


@wrong(
    "plausible",
    "A global layer above the first one counts as well: it reads all tokens, whatever the layers"
    " below it saw.",
)
def global_only_at_the_start(windows: Windows, S: int) -> int:
    return S if windows[0] is None else global_layers_left_out(windows, S)


@wrong(
    "stacks described by one window",
    "You took the first layer's window for all: they may differ from layer to layer.",
)
def one_window_for_all(windows: Windows, S: int) -> int:
    if None in windows or windows[0] is None:
        return S
    return min(S, 1 + len(windows) * (windows[0] - 1))


@wrong(
    "dilated convolutions, whose reach doubles from layer to layer",
    "You multiplied: each layer adds its window − 1, whatever the layers below reach.",
)
def windows_multiplied(windows: Windows, S: int) -> int:
    if None in windows:
        return S
    product = 1
    for window in _local(windows):
        product *= window
    return min(S, product)


def cases(rng: random.Random) -> list[Case]:
    """One layer, equal and different windows, a window of one; the text one shorter than the field,
    just as long, one longer; a global layer first, in the middle, last; published stacks; more
    layers and tokens than any table; then fresh ones."""

    def case(name: str, windows: Windows, S: int, public: bool = True) -> Case:
        return Case(f"{name}, S={S:,}", (windows, S), public=public)

    mixed = [4, 7, 3]
    field = reference(list(mixed), 10**6)
    fresh = []
    for i in range(4):
        windows: Windows = [rng.randrange(2, 30) for _ in range(rng.randrange(2, 9))]
        if i % 2:
            windows[rng.randrange(len(windows))] = None
        fresh.append(case(f"fresh {i + 1}: {windows}", windows, rng.randrange(100, 400), i < 2))
    # one field that float32 cannot tell from its neighbors, one that int32 cannot hold
    wide: Windows = [*[4096] * 198, 131_073, edges.past(10**8)]
    wider: Windows = [edges.past(10**8)] * MOST_LAYERS
    many: Windows = [edges.past(4096)] * MOST_LAYERS
    return [
        case("one layer of window 3", [3], 10),
        case("windows 3, 3", [3, 3], 10),
        case("windows 4, 7, 3", [*mixed], 100),
        *(case("windows 4, 7, 3", [*mixed], S) for S in edges.one_less_and_just_full(field)),
        case("windows 5, 2", [5, 2], 100),
        case("windows 2, 5", [2, 5], 100),
        case("windows 1, 1, 1", [1, 1, 1], 9),
        case("windows 1, 6, 1", [1, 6, 1], 99),
        case("one token", [8, 8], 1),
        case("global, 3, 3", [None, 3, 3], 50),
        case("3, global, 3", [3, None, 3], 50),
        case("3, 3, global", [3, 3, None], 50),
        case("one global layer", [None], 7),
        case("global, global", [None, None], 12),
        case("a text shorter than the first window", [30, 2], 9),
        case("Mistral-7B, 32 layers of 4,096", [4096] * 32, 131_072),
        case("Mistral-7B, 32 layers of 4,096", [4096] * 32, 10**6),
        case("Gemma 3, five local layers and a global one", [1024] * 5 + [None], 131_072),
        # 1 + the sum of the reaches: float32 holds that, but not the sum
        case("one layer of window 16,777,218", [2**24 + 2], 10**9),
        case("200 layers", many, 10**9, public=False),
        case("200 layers, the 151st global", [*many[:150], None, *many[:49]], 10**9, public=False),
        case("200 layers, the last of a huge window", wide, 10**9, public=False),
        case("200 layers of huge windows", wider, 10**9, public=False),
        *fresh,
    ]


EXERCISE = Exercise(
    id="local_attention-receptive_field",
    title="How far back a stack can see",
    kind="formula",
    points=3,
    minutes=12,
    entries=("receptive_field",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "Start with two layers of window 3 and draw arrows from the last output down to the"
            " tokens. How many do they reach?"
        ),
        "A layer reaches window − 1 further back than the one above it. The token itself counts.",
        (
            "1 + the sum of (window − 1), but no more than S; a None anywhere in the list makes it"
            " S."
        ),
    ),
    ranges={"S": (1, 10**9)},
    recall=(
        "Four layers with a window of 32: from how many tokens can the last output know anything?",
        "From 4 · 31 + 1 = 125: each layer reaches 31 further back, and the token itself counts.",
    ),
)
