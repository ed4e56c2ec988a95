"""local_attention-cache_bytes: the cache of a stack of local and global layers."""

from __future__ import annotations

import random

from twophase.checks import edges
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

Windows = list[int | None]


def _bytes(positions: int, K: int, H: int, bytes_per_value: int) -> int:
    return 2 * positions * K * H * bytes_per_value


def reference(windows: Windows, S: int, K: int, H: int, bytes_per_value: int) -> int:
    """The right answer."""
    positions = sum(S if window is None else min(S, window) for window in windows)
    return _bytes(positions, K, H, bytes_per_value)


@wrong(
    "KV calculators that know no windows",
    "You let every layer keep all S tokens: a layer with a window keeps the last `window` of them.",
)
def windows_ignored(windows: Windows, S: int, K: int, H: int, bytes_per_value: int) -> int:
    return _bytes(S * len(windows), K, H, bytes_per_value)


@wrong(
    "lecture notes: “KV cache: independent of sequence length”",
    "You let local layers keep `window` tokens also when the text is shorter: then they hold S.",
)
def windows_always_full(windows: Windows, S: int, K: int, H: int, bytes_per_value: int) -> int:
    positions = sum(S if window is None else window for window in windows)
    return _bytes(positions, K, H, bytes_per_value)


@wrong(
    "plausible",
    "You left out the global layers: they keep every token, and of a long text most of the cache is"
    " theirs.",
)
def global_layers_left_out(windows: Windows, S: int, K: int, H: int, bytes_per_value: int) -> int:
    positions = sum(min(S, window) for window in windows if window is not None)
    return _bytes(positions, K, H, bytes_per_value)


@wrong(
    "plausible",
    "This is half of it: a key and a value are kept of every token.",
)
def keys_only(windows: Windows, S: int, K: int, H: int, bytes_per_value: int) -> int:
    return reference(windows, S, K, H, bytes_per_value) // 2


@wrong(
    "plausible",
    "You capped the whole stack at one window: some layers have others, and global layers none.",
)
def one_window_for_all(windows: Windows, S: int, K: int, H: int, bytes_per_value: int) -> int:
    smallest = min((window for window in windows if window is not None), default=S)
    return _bytes(len(windows) * min(S, smallest), K, H, bytes_per_value)


@wrong(
    "off by one: the last token is in the window",
    "You let a local layer keep window − 1 tokens. The next query needs that many, but a ring has"
    " `window` slots, and that many keys are held.",
)
def one_slot_short(windows: Windows, S: int, K: int, H: int, bytes_per_value: int) -> int:
    positions = sum(S if window is None else min(S, window - 1) for window in windows)
    return _bytes(positions, K, H, bytes_per_value)


@wrong(
    "a blog's formula 2·L·K·H·T, called bytes",
    "You counted numbers, not bytes: multiply by the bytes of one number.",
)
def numbers_not_bytes(windows: Windows, S: int, K: int, H: int, bytes_per_value: int) -> int:
    return reference(windows, S, K, H, 1)


@wrong(
    "plausible",
    "You averaged the windows: one long window does not make up for a short one, since each layer"
    " is capped at S by itself.",
)
def mean_of_windows(windows: Windows, S: int, K: int, H: int, bytes_per_value: int) -> int:
    local = [window for window in windows if window is not None]
    held = min(S * len(local), sum(local))
    return _bytes(held + S * (len(windows) - len(local)), K, H, bytes_per_value)


@wrong(
    "plausible",
    "One KV head was counted: each of the K has keys and values of its own.",
)
def one_head(windows: Windows, S: int, K: int, H: int, bytes_per_value: int) -> int:
    return reference(windows, S, 1, H, bytes_per_value)


def cases(rng: random.Random) -> list[Case]:
    """Tiny stacks; a text one shorter than the window, as long, one longer; windows that differ;
    global layers only, local ones only; published stacks; more of each than any table; then fresh
    ones."""

    def case(
        name: str, windows: Windows, S: int, K: int, H: int, b: int, public: bool = True
    ) -> Case:
        return Case(f"{name}, S={S:,}, K={K}, H={H}, {b} bytes", (windows, S, K, H, b), {}, public)

    fresh = []
    for i in range(4):
        windows: Windows = [
            rng.choice((None, rng.randrange(5, 90))) for _ in range(rng.randrange(3, 9))
        ] + [rng.randrange(20, 60), None]
        sizes = rng.randrange(30, 300), rng.randrange(2, 6), 2 * rng.randrange(3, 20)
        fresh.append(case(f"fresh {i + 1}: {windows}", windows, *sizes, (2, 4, 1, 2)[i], i < 2))
    base: Windows = [6, None, 9]
    named = {"S": 20, "K": 2, "H": 4, "bytes_per_value": 2}
    changed = edges.one_changed(named, S=21, K=3, H=6, bytes_per_value=4)
    gemma: Windows = ([1024] * 5 + [None]) * 10 + [1024, 1024]
    far, heads = edges.past(10**9), edges.past(4096)
    return [
        case("one local layer", [4], 9, 1, 2, 1),
        case("one global layer", [None], 9, 1, 2, 1),
        case("windows 4, global", [4, None], 9, 1, 2, 1),
        *(case("windows 6, 6", [6, 6], S, 2, 4, 2) for S in edges.one_less_and_just_full(6)),
        case("windows 6, global, 9", base, 20, 2, 4, 2),
        *(Case(f"windows 6, global, 9, {n}", (base, *v.values())) for n, v in changed),
        case("windows 6, global, 9", base, 7, 2, 4, 2),
        case("windows 3, 50", [3, 50], 20, 2, 4, 2),
        case("windows 50, 3, global", [50, 3, None], 20, 3, 4, 8),
        case("windows 1, 1", [1, 1], 5, 3, 4, 2),
        case("global, global", [None, None], 31, 2, 6, 4),
        case("one token", [8, None], 1, 2, 4, 2),
        case("Mistral-7B", [4096] * 32, 32_768, 8, 128, 2),
        case("Gemma 3 27B", gemma, 131_072, 16, 128, 2),
        case("Gemma 3 27B", gemma, 1_000, 16, 128, 2),
        case("gpt-oss-20b", [128, None] * 12, 131_072, 8, 64, 2),
        case("half of 300 layers global", [edges.past(4096), None] * 150, far, heads, 513, 2),
        *fresh,
    ]


EXERCISE = Exercise(
    id="local_attention-cache_bytes",
    title="The cache of a hybrid stack",
    kind="formula",
    points=3,
    minutes=10,
    entries=("cache_bytes",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "How many tokens does one layer keep: a global one, and one with a window?",
        "A global layer keeps S, a local one min(S, window). Add that up over the layers.",
        "2 · positions · K · H · bytes_per_value, where positions is that sum.",
    ),
    ranges={"bytes_per_value": (1, 8)},
    recall=(
        "Five layers in six have a window. What does the cache of a very long text shrink to?",
        "To a sixth: the global layers keep all of it, and the windows vanish beside them.",
    ),
)
