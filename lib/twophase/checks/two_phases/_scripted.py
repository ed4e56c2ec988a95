"""The model of two_phases-generate, which keeps the log of its calls, and what an answer shows of
it."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import plain
from twophase.checks.exercise import Case


class ScriptedModel:
    """A model with a cache whose scores depend on every token it has seen and on their order."""

    def __init__(self, V: int, salt: int, largest: float = -1.0, gap: float = 0.25) -> None:
        self.V, self.salt, self.largest, self.gap = V, salt, largest, gap
        self.seen: list[int] = []
        self.calls: list[list[int]] = []

    def __call__(self, tokens: Any) -> list[float]:
        if len(self.calls) == 400:
            raise ValueError("the model was called 400 times: does the loop ever end?")
        tokens = plain(tokens)  # np.argmax and tensor.argmax give numbers of their own
        if isinstance(tokens, list) and len(tokens) > 5000:
            raise ValueError(
                f"the model was given {len(tokens)} tokens at once: no text here is that long"
            )
        if not isinstance(tokens, list | tuple) or not all(
            type(t) is int and 0 <= t < self.V for t in tokens
        ):
            raise ValueError(f"model(tokens) wants a list of token numbers from 0 to {self.V - 1}")
        self.calls.append(list(tokens))
        self.seen += tokens
        scores = [
            self.largest - i * self.gap for i in range(self.V)
        ]  # logits may all be negative; no two are equal in float32
        random.Random(f"{self.salt}/{self.seen}").shuffle(scores)
        return scores


def observe(answer: Answer, case: Case) -> Any:
    """The tokens that come back, and what the model was fed, call by call."""
    prompt, max_new_tokens, stop_token, *model_of = case.args
    model = ScriptedModel(*model_of)
    tokens = plain(answer.call("generate", model, prompt, max_new_tokens, stop_token))
    if isinstance(tokens, list | tuple) and any(type(t) is float for t in tokens):
        tokens = "numbers that are no whole numbers: a token is an int"
    return {"tokens": tokens, "calls of the model": model.calls}
