"""latency_throughput-calculator: a KV calculator as it circulates, eight times too big; exposed and
repaired."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks import edges
from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.latency_throughput import _calculators as k
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

Call = list[Any]


def observe(answer: Answer, case: Case) -> Any:
    """A case with a fault's name asks whether `expose` shows it; one with a config runs the
    repaired function."""
    if not isinstance(case.args[0], str):
        return answer.call("kv_cache_bytes", *case.args)
    calls = plain(answer.call("expose"))
    found = k.problem(calls)
    if found:
        return {"the calls": found, "a call shows it": False}
    fault = k.FAULTS[case.args[0]]
    return {
        "the calls": "valid",
        "a call shows it": any(fault(*call) != k.RIGHT(*call) for call in calls),
    }


def _config(L: int, D: int, N: int, dtype: str, **optional: int | None) -> k.Config:
    required = {
        "num_hidden_layers": L,
        "hidden_size": D,
        "num_attention_heads": N,
        "torch_dtype": dtype,
    }
    return {**required, **optional}


ONE_HEAD = _config(3, 96, 12, "bfloat16", num_key_value_heads=1, head_dim=37)
MHA = _config(5, 96, 12, "float16", num_key_value_heads=12)
NARROW = _config(5, 100, 12, "float16", head_dim=5)  # D / N would be more, and no whole number
LARGE = _config(101, 3003, 3, "float32")  # 2 · B · S · L · N · H · 4 bytes: between 2⁵³ and 2⁶³


def _fresh(rng: random.Random, i: int) -> Case:
    K, G, H = rng.randrange(2, 9), rng.randrange(2, 9), rng.randrange(20, 200)
    given: dict[str, int | None] = {"num_key_value_heads": K, "head_dim": H}
    D = K * G * rng.randrange(30, 150)
    config = _config(rng.randrange(4, 90), D, K * G, rng.choice(list(k.BYTES)), **given)
    return Case(
        f"repaired: fresh {i + 1}",
        (config, rng.randrange(2, 60), rng.randrange(100, 9000)),
        public=i < 1,
    )


def _one_by_one() -> list[tuple[str, tuple[k.Config, int, int]]]:
    """All keys given, and then each of them another one, and B, and S."""
    given = _config(2, 12, 6, "bfloat16", num_key_value_heads=3, head_dim=5)
    others = {
        "num_hidden_layers": 3,
        "torch_dtype": "float32",
        "num_key_value_heads": 2,
        "head_dim": 7,
    }
    changed = [(f", {name}", (c, 1, 5)) for name, c in edges.one_changed(given, **others)]
    return [("", (given, 1, 5)), *changed, (", B=2", (given, 2, 5)), (", S=6", (given, 1, 6))]


def cases(rng: random.Random) -> list[Case]:
    """Configs with and without the optional keys, one KV head and all of them, odd widths, the
    largest sizes, then the faults that `expose` must show."""
    plain = _config(2, 12, 3, "float16")
    one = {**plain, "num_key_value_heads": 1}
    llama2 = _config(40, 5120, 40, "float16")
    llama3 = _config(80, 8192, 64, "bfloat16", num_key_value_heads=8)
    gemma = _config(42, 3584, 16, "bfloat16", num_key_value_heads=8, head_dim=256)
    return [
        Case("repaired: neither optional key", (plain, 1, 5)),
        Case("repaired: another hidden_size", (_config(2, 15, 3, "float16"), 1, 5)),
        Case("repaired: one KV head", (one, 1, 5)),
        Case("repaired: one KV head, four query heads", ({**one, "num_attention_heads": 4}, 1, 5)),
        Case("repaired: float32", (_config(2, 12, 3, "float32"), 2, 5)),
        Case(
            "repaired: both optional keys are None",
            ({**plain, "num_key_value_heads": None, "head_dim": None}, 1, 5),
        ),
        Case("repaired: Llama-2-13B, 64 sequences of 1,024", (llama2, 64, 1024)),
        Case("repaired: Llama-3-70B, one sequence of 8,192", (llama3, 1, 8192)),
        Case("repaired: Gemma-2-9B, whose heads are not D / N wide", (gemma, 3, 4096)),
        Case("repaired: bfloat16, one KV head of an odd width", (ONE_HEAD, 1031, 7)),
        Case("repaired: 49 heads, one number each", (_config(3, 49, 49, "float32"), 2, 5)),
        Case("repaired: as many KV heads as query heads, given", (MHA, 3, 1001)),
        *(Case(f"repaired: all keys given{name}", call) for name, call in _one_by_one()),
        Case("repaired: heads narrower than D / N, which is no whole number", (NARROW, 2, 5)),
        Case("repaired: more bytes than a float holds, whole heads", (LARGE, 999_999, 999_983)),
        *(_fresh(rng, i) for i in range(3)),
        *(Case(f"exposed: {fault}", (fault,)) for fault in k.FAULTS),
    ]


def expose() -> list[Call]:
    """The right answer (one of many)."""
    return [[_config(1, 64, 8, "bfloat16", num_key_value_heads=2, head_dim=16), 1, 10]]


@wrong(
    "tests on Llama-2",
    "In all your configs every query head has its own keys: there the two numbers of heads are"
    " equal, and the first fault stays hidden.",
    entry="expose",
)
def exposed_mha_only() -> list[Call]:
    return [
        [_config(1, 64, 8, "bfloat16", head_dim=16), 1, 10],
        [_config(1, 64, 8, "float16"), 2, 10],
    ]


@wrong(
    "tests on Llama",
    "In none of your configs is head_dim other than hidden_size / num_attention_heads: that fault"
    " stays hidden.",
    entry="expose",
)
def exposed_square_heads() -> list[Call]:
    return [[_config(1, 64, 8, "bfloat16", num_key_value_heads=2), 1, 10]]


@wrong(
    "tests in float16",
    "None of your configs is in bfloat16, so that fault stays hidden.",
    entry="expose",
)
def exposed_float16_only() -> list[Call]:
    return [[_config(1, 64, 8, "float16", num_key_value_heads=2, head_dim=16), 1, 10]]


@wrong(
    "plausible",
    "The query heads of your config cannot be shared evenly among its KV heads: an invalid config"
    " shows nothing.",
    entry="expose",
)
def exposed_uneven_groups() -> list[Call]:
    return [[_config(1, 64, 8, "bfloat16", num_key_value_heads=3, head_dim=16), 1, 10]]


wrong.add(
    "unrepaired",
    {"kv_cache_bytes": k.PRINTED},
    "KV calculators (modular handbook #131, LMCache #688)",
    "The function is still the printed one: all three faults are in it.",
)
wrong.add(
    "query_heads_still",
    {"kv_cache_bytes": k.calculator(heads=k.query_heads)},
    "KV calculators (modular handbook #131, LMCache #688)",
    "You still multiply by the query heads. Only num_key_value_heads of them are stored.",
)
wrong.add(
    "head_dim_still",
    {"kv_cache_bytes": k.calculator(width=k.width_over_heads)},
    "calculators tried on Llama only",
    "You still take hidden_size / num_attention_heads for the head's width: where head_dim is"
    " given, it decides.",
)
wrong.add(
    "width_over_kv_heads",
    {"kv_cache_bytes": k.calculator(width=k.width_over_kv_heads)},
    "plausible",
    "You divide the width by the KV heads. A head is hidden_size / num_attention_heads wide, GQA"
    " or not.",
)
wrong.add(
    "bfloat16_still",
    {"kv_cache_bytes": k.calculator(size=k.only_float16_is_short)},
    "plausible",
    "bfloat16 is still taken for four bytes: it has two.",
)
wrong.add(
    "always_two_bytes",
    {"kv_cache_bytes": k.calculator(size=lambda c: 2)},
    "calculators for half precision",
    "float32 has four bytes; you take two for every dtype.",
)
wrong.add(
    "keys_required",
    {
        "kv_cache_bytes": k.calculator(
            heads=lambda c: int(c["num_key_value_heads"]), width=lambda c: int(c["head_dim"])
        )
    },
    "plausible",
    "num_key_value_heads and head_dim may be missing: then K = N, and a head is hidden_size / N"
    " wide.",
)
wrong.add(
    "none_not_expected",
    {"kv_cache_bytes": k.calculator(heads=k.get_kv_heads, width=k.get_head_dim)},
    "plausible",
    "A key may be there and hold None, which get(key, default) returns as it is: treat None like a"
    " missing key.",
)


EXERCISE = Exercise(
    id="latency_throughput-calculator",
    title="A calculator that is eight times too big",
    kind="fault",
    points=4,
    minutes=15,
    entries=("expose", "kv_cache_bytes"),
    cases=cases,
    observe=observe,
    reference={"kv_cache_bytes": k.RIGHT, "expose": expose},
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "Go through the contract key by key. Which keys does the printed code never look at,"
            " which values of torch_dtype?"
        ),
        (
            "One config can show all three: fewer KV heads than query heads, a head_dim that is not"
            " hidden_size / heads, bfloat16."
        ),
        (
            "K = config.get('num_key_value_heads'), and if that is None, K = num_attention_heads;"
            " likewise head_dim."
        ),
    ),
    ranges={"kv_cache_bytes.B": (1, 999_999), "kv_cache_bytes.S": (5, 999_983)},
    recall=(
        (
            "By how much does a calculator that counts query heads overstate the cache of"
            " Llama-3-70B (N = 64, K = 8)?"
        ),
        "By G = N / K = 8 times.",
    ),
)
