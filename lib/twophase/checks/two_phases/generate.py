"""two_phases-generate: the generation loop over a model that keeps its cache; the judge keeps the
log of its calls."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

from twophase.checks.compare import EXACT
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions
from twophase.checks.two_phases._scripted import ScriptedModel, observe

wrong = Misconceptions()

Model = Callable[[list[int]], list[float]]


def best(scores: list[float]) -> int:
    return max(range(len(scores)), key=lambda i: scores[i])


def reference(model: Model, prompt: list[int], max_new_tokens: int, stop_token: int) -> list[int]:
    """The right answer."""
    generated: list[int] = []
    fed = prompt
    while len(generated) < max_new_tokens:
        token = best(model(fed))
        if token == stop_token:
            break
        generated.append(token)
        fed = [token]
    return generated


@wrong(
    "generation loops without a cache",
    "You feed the whole text at every step. The model keeps a cache: after the prompt it wants the"
    " new token only.",
)
def whole_text_again(
    model: Model, prompt: list[int], max_new_tokens: int, stop_token: int
) -> list[int]:
    text = list(prompt)
    while len(text) - len(prompt) < max_new_tokens:
        token = best(model(text))
        if token == stop_token:
            break
        text.append(token)
    return text[len(prompt) :]


@wrong(
    "loops that prefill first and call the model at the end of the body",
    "You call the model after the last token, though nobody needs what comes next: one wasted step"
    " per request.",
)
def one_call_too_many(
    model: Model, prompt: list[int], max_new_tokens: int, stop_token: int
) -> list[int]:
    generated: list[int] = []
    scores = model(prompt)
    while len(generated) < max_new_tokens:
        token = best(scores)
        if token == stop_token:
            break
        generated.append(token)
        scores = model([token])
    return generated


@wrong(
    "plausible",
    "The stop token ends the text; it is not part of it. Leave it out of what you return.",
)
def stop_token_kept(
    model: Model, prompt: list[int], max_new_tokens: int, stop_token: int
) -> list[int]:
    generated: list[int] = []
    fed = prompt
    while len(generated) < max_new_tokens and (not generated or generated[-1] != stop_token):
        generated.append(best(model(fed)))
        fed = generated[-1:]
    return generated


@wrong("plausible", "You never look at the stop token, so every request runs to its limit.")
def stop_ignored(
    model: Model, prompt: list[int], max_new_tokens: int, stop_token: int
) -> list[int]:
    generated: list[int] = []
    fed = prompt
    for _ in range(max_new_tokens):
        generated.append(best(model(fed)))
        fed = generated[-1:]
    return generated


@wrong(
    "plausible",
    "You feed the prompt a token at a time: right tokens, but prefill became decode. One call"
    " takes the whole prompt.",
)
def prompt_one_by_one(
    model: Model, prompt: list[int], max_new_tokens: int, stop_token: int
) -> list[int]:
    if max_new_tokens == 0:
        return []
    for token in prompt[:-1]:
        model([token])
    return reference(model, prompt[-1:], max_new_tokens, stop_token)


@wrong(
    "loops that start decoding from the prompt's last token",
    "The prompt's last token went in twice: the scores that prefill returns already are those for"
    " the first new token.",
)
def last_prompt_token_twice(
    model: Model, prompt: list[int], max_new_tokens: int, stop_token: int
) -> list[int]:
    if max_new_tokens == 0:
        return []
    model(prompt)
    return reference(model, prompt[-1:], max_new_tokens, stop_token)


@wrong("plausible", "You return the prompt as well; the task asks for the new tokens only.")
def prompt_returned(
    model: Model, prompt: list[int], max_new_tokens: int, stop_token: int
) -> list[int]:
    return prompt + reference(model, prompt, max_new_tokens, stop_token)


@wrong(
    "plausible",
    "Token 0 is a token like any other, but it counts as false: compare with stop_token, do not"
    " ask whether there is one.",
)
def stop_token_0_is_none(
    model: Model, prompt: list[int], max_new_tokens: int, stop_token: int
) -> list[int]:
    return reference(model, prompt, max_new_tokens, stop_token or -1)


@wrong(
    "plausible",
    "All scores may be negative: start the search for the largest at the first score, not at 0.",
)
def best_starts_at_0(
    model: Model, prompt: list[int], max_new_tokens: int, stop_token: int
) -> list[int]:
    def positive(tokens: list[int]) -> list[float]:
        return [max(x, 0.0) for x in model(tokens)]

    return reference(positive, prompt, max_new_tokens, stop_token)


def _said(model_of: tuple[int, int, float, float], prompt: list[int], n: int) -> list[int]:
    return reference(ScriptedModel(*model_of), prompt, n, -1)


def _case(
    rng: random.Random,
    name: str,
    n_prompt: int,
    n: int,
    stop_at: int | None = None,
    stop: int | None = None,
    *,
    V: int = 40,
    largest: float = -1.0,
    gap: float = 0.25,
    twice: bool = False,
    held: bool = False,
    late: int = 0,
    shown: bool = True,
) -> Case:
    """`stop_at`: the model says the stop token at this step first; None: never. `stop`: which token
    that is; `held`: the prompt holds it. `twice`: it says some other token twice, one after the
    other; `late`: it says the prompt's last token after so many."""
    while True:
        model_of = (V, rng.getrandbits(30), largest, gap)
        prompt = [rng.randrange(1, V) for _ in range(n_prompt)]
        said = _said(model_of, prompt, n)
        if twice and not any(a == b for a, b in pairwise(said)):
            continue
        if late and prompt[-1] not in said[late:]:
            continue
        unsaid = [t for t in prompt if t not in said]  # that the prompt holds it does not matter
        if stop_at is None and unsaid:
            return Case(name, (prompt, n, unsaid[0], *model_of), public=shown)
        token = -1 if stop_at is None else said[stop_at]
        wanted = stop in (None, token) and (V < 4096 or token > 2048) and (token in prompt) == held
        if token >= 0 and said.index(token) == stop_at and wanted:
            return Case(name, (prompt, n, token, *model_of), public=shown)


def cases(rng: random.Random) -> list[Case]:
    """No token at all; the limit ends it; the stop token ends it, at once or later, and may be
    token 0."""
    return [
        _case(rng, "no token wanted: the model is not called", 3, 0, None),
        _case(rng, "one token", 4, 1, None),
        _case(rng, "five tokens; the stop token is in the prompt only", 3, 5, None),
        _case(rng, "the first token is the stop token", 2, 4, 0),
        _case(rng, "the stop token comes on the way", 5, 9, 4),
        _case(rng, "it comes on the way, and is in the prompt", 5, 9, 4, held=True),
        _case(rng, "the stop token is token 0", 3, 6, 2, stop=0),
        _case(rng, "the stop token comes in the last step", 2, 4, 3),
        _case(rng, "a prompt of one token", 1, 6, None),
        _case(
            rng,
            "a prompt of 20 tokens; scores far below zero",
            20,
            3,
            largest=-(2.0**40),
            gap=2.0**18,
        ),
        _case(rng, "scores around 1,000", 3, 8, largest=1000.0),
        _case(rng, "scores that almost tie", 3, 8, gap=2.0**-16),
        _case(rng, "two tokens to choose from: one six times", 3, 6, V=2),
        _case(rng, "the same token twice, one after the other", 3, 20, twice=True),
        _case(rng, "4,099 tokens to choose from, the stop token past 2,048", 3, 2, 1, V=4099),
        _case(rng, "a prompt of 2,053 tokens", past(2048), 3, V=99, shown=False),
        _case(rng, "300 new tokens", 5, 300, V=200, shown=False),
        _case(
            random.Random(61),
            "the prompt's last token again, late in the text",
            5,
            300,
            V=200,
            late=60,
            shown=False,
        ),
        _case(rng, "fresh, ended by its length", 11, 12, None, shown=False),
        _case(rng, "fresh, stopped", 7, 20, 13, shown=False),
    ]


EXERCISE = Exercise(
    id="two_phases-generate",
    title="The generation loop",
    kind="kernel",
    points=3,
    minutes=15,
    entries=("generate",),
    cases=cases,
    reference=reference,
    observe=observe,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "What do you feed first, and what at every later step? Keep it in one variable.",
        (
            "One call of the model per token, the prompt's call included. Look at the limit before"
            " you call, at the stop token after."
        ),
        (
            "fed = prompt; while there is room: token = argmax(model(fed)); stop?; append; fed ="
            " [token]."
        ),
    ),
    recall=(
        "How many times does a cached loop call the model for n output tokens?",
        "n times: one prefill, which gives the first token, and n − 1 decode steps.",
    ),
    ranges={"len(prompt)": (1, 2053), "max_new_tokens": (0, 300), "stop_token": (0, 2048)},
    # the loop, what it feeds, and what goes round it
)
