"""The two models of speculative_decoding-snippet, what its printed code says with them, and what a
valid input is."""

from __future__ import annotations

from typing import Any

from twophase.checks.speculative_decoding._rule import Probs, left_over

MOST_TOKENS, LEAST_PROB = 5, 0.01
ROUNDING = 1e-9  # 1 - 0.9 - 0.09 is a little less than 0.01
KEYS = {"prompt", "target", "draft"}


def apart(one: Probs, other: Probs) -> float:
    """Total variation."""
    return sum(abs(x - y) for x, y in zip(one, other, strict=True)) / 2


def printed_law(given: dict[str, Any]) -> Probs:
    """The law of the token that the printed code returns with k = 1: drafted after the prompt's
    last token, judged by the laws after its first."""
    first, last = given["prompt"][0], given["prompt"][-1]
    drawn, target, draft = given["draft"][last], given["target"][first], given["draft"][first]
    keep = [min(1.0, t / d) for t, d in zip(target, draft, strict=True)]
    refused = sum(p * (1 - a) for p, a in zip(drawn, keep, strict=True))
    left = left_over(target, draft)
    total = sum(left) or 1.0
    return [p * a + refused * x / total for p, a, x in zip(drawn, keep, left, strict=True)]


def miss(given: dict[str, Any]) -> float:
    """How far the printed code's law is from the target's."""
    return apart(printed_law(given), given["target"][given["prompt"][-1]])


def difference(given: dict[str, Any]) -> float:
    """How far draft and target are apart behind the prompt."""
    last = given["prompt"][-1]
    return apart(given["target"][last], given["draft"][last])


def alike(given: dict[str, Any]) -> bool:
    """Whether draft and target are one model."""
    rows = zip(given["target"], given["draft"], strict=True)
    return all(apart(target, draft) <= 1e-6 for target, draft in rows)


def problem(found: Any) -> str:
    """Why something is no input, in one sentence; empty if it is."""
    if not isinstance(found, dict) or set(found) != KEYS:
        return 'an input is a dict with the keys "prompt", "target", "draft"'
    prompt, target, draft = found["prompt"], found["target"], found["draft"]
    if not isinstance(target, list | tuple) or not 2 <= len(target) <= MOST_TOKENS:
        return "target and draft are lists of 2 to 5 rows"
    V = len(target)
    for table in (target, draft):
        if not isinstance(table, list | tuple) or len(table) != V:
            return "target and draft have one row for each token of the vocabulary"
        if not all(_is_law(row, V) for row in table):
            return "a row has a number for each token, at least 0.01, and they sum to 1"
    if not isinstance(prompt, list | tuple) or not 2 <= len(prompt) <= 8:
        return "a prompt has 2 to 8 tokens"
    if not all(type(token) is int and 0 <= token < V for token in prompt):
        return "a prompt's tokens are numbers of rows"
    return ""


def _is_law(row: Any, V: int) -> bool:
    return (
        isinstance(row, list | tuple)
        and len(row) == V
        and all(isinstance(p, int | float) and not isinstance(p, bool) for p in row)
        and all(LEAST_PROB - ROUNDING <= p <= 1 for p in row)
        and abs(sum(row) - 1) < 1e-6
    )
