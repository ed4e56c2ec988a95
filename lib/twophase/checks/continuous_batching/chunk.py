"""continuous_batching-chunk: how many tokens of a prompt a pass may read beside those that
decode."""

from __future__ import annotations

import random

from twophase.checks.compare import EXACT
from twophase.checks.edges import one_changed, past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Sizes = dict[str, float]
Found = dict[str, int | None]


def reference(
    read_bytes: float,
    token_flops: float,
    bytes_per_s: float,
    flops_per_s: float,
    B: int,
    prompt: int,
    limit_s: float,
) -> Found:
    """The right answer."""
    most = int(limit_s * flops_per_s / token_flops)  # tokens that are computed in time
    if read_bytes / bytes_per_s > limit_s or most < B:
        return {"chunk": None, "passes": None}
    chunk = min(prompt, most - B)
    return {"chunk": chunk, "passes": -(-prompt // chunk) if chunk else None}


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "decoding_left_out",
    {"min(prompt, most - B)": "min(prompt, most)"},
    "plausible",
    "You gave the prompt all tokens of the pass. The B that decode compute one each: take these"
    " off.",
)
_add(
    "reading_not_checked",
    {"read_bytes / bytes_per_s > limit_s or ": ""},
    "plausible",
    "Weights and caches are read in every pass. If that alone takes longer than the limit, no"
    " chunk is small enough.",
)
_add(
    "added",
    {
        "int(limit_s * flops_per_s / token_flops)": (
            "int(max(0.0, limit_s - read_bytes / bytes_per_s) * flops_per_s / token_flops)"
        )
    },
    "plausible",
    "You subtract the reading from the limit. Here reading and computing overlap: each must keep"
    " the limit by itself.",
)
_add(
    "longer_than_the_prompt",
    {"min(prompt, most - B)": "most - B"},
    "plausible",
    "Your chunk is longer than what is left of the prompt.",
)
_add(
    "one_token_less",
    {
        "int(limit_s * flops_per_s / token_flops)": (
            "-int(-limit_s * flops_per_s // token_flops + 1)"
        )
    },
    "plausible",
    "A pass that takes exactly the limit keeps it: one more token fits.",
)
_add(
    "passes_rounded_down",
    {"-(-prompt // chunk)": "prompt // chunk"},
    "plausible",
    "The rest of the prompt needs a pass, too: round up.",
)
_add(
    "zero_for_none",
    {'return {"chunk": None, "passes": None}': 'return {"chunk": 0, "passes": None}'},
    "plausible",
    "Where the limit cannot be kept even without a chunk, return None for it. 0 says that it is"
    " kept.",
)
_add(
    "a_token_in_any_case",
    {"chunk = min(prompt, most - B)": "chunk = min(prompt, max(1, most - B))"},
    "plausible",
    "If the decoding tokens fill the pass there is no room for a chunk: 0.",
)
_add(
    "rounded_up",
    {"int(limit_s * flops_per_s / token_flops)": "-int(-limit_s * flops_per_s // token_flops)"},
    "plausible",
    "You round the number of tokens up: the last one would be late.",
)


def cases(rng: random.Random) -> list[Case]:
    """A model of 7 billion parameters; the decoding tokens just fit, one less and one more; reading
    takes exactly the limit, and longer; chunks that divide the prompt; each argument changed."""
    seven = {
        "read_bytes": 20e9,
        "token_flops": 13.5e9,
        "bytes_per_s": 3.35e12,
        "flops_per_s": 9.9e14,
        "B": 32,
        "prompt": 8000,
        "limit_s": 0.0251,
    }
    even = dict(zip(seven, (2.0**33, 2.0**33, 2.0**40, 2.0**50, 64, 1000, 2.0**-7), strict=True))
    # 1,024 tokens in 2^-7 s, exactly; the reading takes as long
    assert even["read_bytes"] / even["bytes_per_s"] == even["limit_s"]
    assert even["limit_s"] * even["flops_per_s"] / even["token_flops"] == 1024
    # 249,999.5 tokens in 2^-13 s: two millionths below a whole number of them, and half a
    # nanosecond a token
    rates = {"token_flops": 2.0, "flops_per_s": 499_999 * 2.0**13, "limit_s": 2.0**-13}
    half = {**even, **rates, "read_bytes": 8.0, "B": 0, "prompt": 10**6}
    # 1,024 tokens in 2^-17 s, in which the reading takes a fraction of a nanosecond too long
    quick = {**even, "token_flops": 2.0**23, "bytes_per_s": 2.0**50, "limit_s": 2.0**-17}
    changed = one_changed(
        seven,
        read_bytes=90e9,
        token_flops=40e9,
        bytes_per_s=7e11,
        flops_per_s=2e14,
        B=1500,
        prompt=100_000,
        limit_s=0.0503,
    )
    fresh = [
        {
            "read_bytes": rng.uniform(1e9, 6e10),
            "token_flops": rng.uniform(1e9, 3e10),
            "bytes_per_s": 3.35e12,
            "flops_per_s": 9.9e14,
            "B": rng.randrange(1, 200),
            "prompt": rng.randrange(1000, 30_000),
            "limit_s": rng.uniform(0.02, 0.1),
        }
        for _ in range(5)
    ]
    named = [
        ("7 billion parameters, 32 decode", seven),
        ("a short prompt", {**seven, "prompt": 100}),
        ("a prompt of one token", {**seven, "prompt": 1}),
        ("reading takes longer than the limit", {**seven, "limit_s": 0.005}),
        ("reading takes exactly the limit", even),
        ("reading takes a little longer", {**even, "read_bytes": 2.0**33 + 2.0**12}),
        ("the chunk is a token less than the prompt", {**even, "prompt": 961}),
        ("the chunk is the prompt", {**even, "prompt": 960}),
        ("the chunk divides the prompt", {**even, "prompt": 2880}),
        ("a token more than three chunks", {**even, "prompt": 2881}),
        ("those that decode fill the pass", {**even, "B": 1024}),
        ("they leave one token", {**even, "B": 1023}),
        ("they are one too many", {**even, "B": 1025}),
        ("nobody decodes", {**even, "B": 0}),
        ("nobody decodes, the limit bounds the chunk", {**even, "B": 0, "prompt": 2880}),
        ("half a token less than 250,000", half),
        ("half a token more", {**half, "flops_per_s": 500_001 * 2.0**13}),
        ("a limit of microseconds, reading takes exactly as long", quick),
        (
            "a limit of microseconds, reading takes a little longer",
            {**quick, "read_bytes": 2.0**33 + 2.0**12},
        ),
        ("no limit worth the name", {**even, "limit_s": 4096.0, "prompt": past(10**6)}),
        (
            "not even one token is computed in time",
            {**even, "read_bytes": 8.0, "limit_s": 2.0**-18},
        ),
        ("2,053 decode", {**seven, "B": past(2048), "limit_s": 0.0503}),
        ("a third of a token over", {**even, "token_flops": 3 * 2.0**31, "prompt": 5000}),
        *((f"7 billion, {what}", new) for what, new in changed),
        *((f"fresh {i + 1}", new) for i, new in enumerate(fresh)),
    ]
    return [Case(name, kwargs=sizes, public=name < "fresh 3") for name, sizes in named]


EXERCISE = Exercise(
    id="continuous_batching-chunk",
    title="The largest chunk that nobody notices",
    kind="formula",
    points=3,
    minutes=10,
    entries=("largest_chunk",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "How many tokens can a pass compute within the limit, whosever they are?",
        (
            "limit_s · flops_per_s / token_flops, rounded down; B of these decode. Reading takes"
            " read_bytes / bytes_per_s, whatever the chunk."
        ),
        (
            "Both None if reading is too long or B are too many; else min(prompt, what is left),"
            " and prompt over it, rounded up. With a chunk of 0 no number of passes is enough."
        ),
    ),
    ranges={"B": (0, past(2048)), "prompt": (1, past(10**6))},
    recall=(
        "A pass may take 25 ms and computes 2,000 tokens in that time; 64 decode. How large may the"
        " chunk of a prompt be?",
        "1,936 tokens, if the weights and caches are read in 25 ms as well.",
    ),
)
