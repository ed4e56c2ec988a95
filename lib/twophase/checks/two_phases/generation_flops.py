"""two_phases-generation_flops: what a generation costs with and without a cache."""

from __future__ import annotations

import random

from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()


def _tokens_run(n_prompt: int, n_output: int, cached: bool) -> int:
    if cached:
        return n_prompt + n_output - 1
    return n_output * n_prompt + n_output * (n_output - 1) // 2


def reference(n_params: int, n_prompt: int, n_output: int, cached: bool) -> int:
    """The right answer."""
    return 2 * n_params * _tokens_run(n_prompt, n_output, cached)


@wrong(
    "lecture notes that give 6 × tokens × parameters for a forward pass",
    "6 FLOPs per parameter is training: 2 forward, 4 backward. Inference has no backward pass.",
)
def six_per_parameter(n_params: int, n_prompt: int, n_output: int, cached: bool) -> int:
    return 6 * n_params * _tokens_run(n_prompt, n_output, cached)


@wrong("plausible", "Each parameter is multiplied and then added: that is 2 FLOPs, not 1.")
def one_per_parameter(n_params: int, n_prompt: int, n_output: int, cached: bool) -> int:
    return n_params * _tokens_run(n_prompt, n_output, cached)


@wrong(
    "generation loops that run the model once more after the last token",
    "You ran the model on the last token too. Once it is sampled, the generation is over: nobody"
    " needs what comes next.",
)
def last_token_fed_back(n_params: int, n_prompt: int, n_output: int, cached: bool) -> int:
    if cached:
        return 2 * n_params * (n_prompt + n_output)
    return 2 * n_params * (n_output * n_prompt + n_output * (n_output + 1) // 2)


@wrong(
    "plausible",
    "The prompt is missing: its tokens go through the model as well, once with a cache, at every"
    " step without.",
)
def prompt_left_out(n_params: int, n_prompt: int, n_output: int, cached: bool) -> int:
    return 2 * n_params * (n_output if cached else n_output * (n_output + 1) // 2)


@wrong(
    "plausible",
    "Without a cache each step runs the prompt and all tokens generated so far, not the prompt"
    " alone.",
)
def prompt_every_step(n_params: int, n_prompt: int, n_output: int, cached: bool) -> int:
    if cached:
        return 2 * n_params * (n_prompt + n_output - 1)
    return 2 * n_params * n_output * n_prompt


@wrong(
    "plausible",
    "This is the cached cost in both cases. Without a cache step i runs the whole text again:"
    " n_prompt + i tokens.",
)
def cache_changes_nothing(n_params: int, n_prompt: int, n_output: int, cached: bool) -> int:
    return 2 * n_params * (n_prompt + n_output - 1)


def cases(rng: random.Random) -> list[Case]:
    """One parameter, so that the tokens can be counted by hand; one token in or out; Llama-2-7B;
    fresh ones."""
    fresh = [
        Case(
            f"fresh {i + 1}",
            (
                rng.randrange(10**6, 10**11),
                rng.randrange(2, 4000),
                rng.randrange(2, 900),
                i % 2 == 0,
            ),
            public=i < 2,
        )
        for i in range(6)
    ]
    return [
        Case("1 parameter, 5 prompt tokens, 3 output tokens, cached", (1, 5, 3, True)),
        Case("1 parameter, 5 prompt tokens, 3 output tokens, not cached", (1, 5, 3, False)),
        # the same tokens: whoever keeps results by these alone is wrong here
        Case("2 parameters, 5 prompt tokens, 3 output tokens, cached", (2, 5, 3, True)),
        Case("1 output token, cached", (10, 7, 1, True)),
        Case("1 output token, not cached", (10, 7, 1, False)),
        Case("2 output tokens, cached", (10, 7, 2, True)),
        Case("1 prompt token, 4 output tokens, cached", (10, 1, 4, True)),
        Case("1 prompt token, 4 output tokens, not cached", (10, 1, 4, False)),
        Case("one token in and one out, not cached", (10, 1, 1, False)),
        Case("as many tokens in as out: 4, not cached", (10, 4, 4, False)),
        Case("Llama-2-7B, 512 in, 256 out, cached", (6_607_077_376, 512, 256, True)),
        Case("Llama-2-7B, 512 in, 256 out, not cached", (6_607_077_376, 512, 256, False)),
        Case(
            "405 billion parameters, 100,000 tokens in and out, not cached: more than 2^63",
            (405 * 10**9, 100_000, 100_001, False),
        ),
        Case(
            "405 billion parameters, 100,000 tokens in and out, cached",
            (405 * 10**9, 100_000, 100_001, True),
        ),
        *fresh,
    ]


EXERCISE = Exercise(
    id="two_phases-generation_flops",
    title="What a generation costs",
    kind="formula",
    points=2,
    minutes=10,
    entries=("generation_flops",),
    cases=cases,
    reference=reference,
    compare=Tolerance(rtol=1e-12, why="a sum of integers, perhaps carried as float64"),
    misconceptions=tuple(wrong),
    hints=(
        (
            "Count tokens first: how many go through the model in all the calls together? Then"
            " multiply."
        ),
        (
            "With a cache: the prompt in one call, then one token per call. How many calls follow"
            " the first?"
        ),
        (
            "Without a cache call i (from 0) runs n_prompt + i tokens. Sum over i from 0 to"
            " n_output − 1."
        ),
    ),
    recall=(
        "How many FLOPs does one token cost in a forward pass, attention's pairs left out?",
        "Two for each parameter it is multiplied with: one multiply, one add.",
    ),
    ranges={"n_params": (1, 4.05e11), "n_prompt": (1, 100_000), "n_output": (1, 100_001)},
    # pairs of a query and a key are as many as the tokens of all steps
)
