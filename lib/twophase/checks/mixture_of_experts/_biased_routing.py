"""The routing of mixture_of_experts-biased: that of the contract, that of the printed code, and
what a valid input is."""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor
MOST, LARGEST, NEAR = 8, 10.0, 1e-3  # tokens and experts; a logit; scores that count as equal


def right(logits: Tensor, bias: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The contract: the bias chooses, the score weighs."""
    scores = logits.sigmoid()  # [tokens, E]
    experts = (scores + bias).topk(k, -1).indices  # [tokens, k]
    weights = scores.gather(-1, experts)
    return experts, weights / weights.sum(-1, True)


def printed(logits: Tensor, bias: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """As the notebook prints it."""
    scores = logits.sigmoid() + bias
    weights, experts = scores.topk(k, -1)
    return experts, weights / weights.sum(-1, True)


def apart(given: tuple[Tensor, Tensor, int]) -> float:
    """The largest difference between the weights of the two."""
    return float((printed(*given)[1] - right(*given)[1]).abs().nan_to_num(9.0).max())


def bias_decides(given: tuple[Tensor, Tensor, int]) -> bool:
    """Whether some token would go to other experts without the bias."""
    logits, bias, k = given
    without = right(logits, torch.zeros_like(bias), k)[0].sort(-1).values
    return bool((without != right(*given)[0].sort(-1).values).any())


def problem(found: Any) -> str:
    """Why something is no input, in one sentence; empty if it is."""
    if not isinstance(found, dict) or set(found) != {"logits", "bias", "k"}:
        return 'an input is a dict with the keys "logits", "bias", "k"'
    rows, bias, k = found["logits"], found["bias"], found["k"]
    if not isinstance(rows, list | tuple) or not 1 <= len(rows) <= MOST:
        return f"logits is a list of 1 to {MOST} rows"
    if not all(_numbers(row, LARGEST) and len(row) == len(rows[0]) for row in rows):
        return "a row of logits has 2 to 8 numbers from −10 to 10, all rows as many"
    if not _numbers(bias, 1.0) or len(bias) != len(rows[0]):
        return "bias has a number from −1 to 1 for each expert"
    if type(k) is int and k == 1:
        return "k is 1, and is to be 2 at least"
    if type(k) is not int or not 2 <= k <= len(bias):
        return "k is a whole number from 2 to the number of experts"
    logits, shift = torch.tensor(rows).double(), torch.tensor(bias).double()
    for scores in (logits.sigmoid(), logits.sigmoid() + shift):
        steps = scores.sort(-1).values.diff(dim=-1)
        if float(steps.min()) < NEAR:
            return "two scores of a token are nearer than 0.001, with the bias or without"
    return ""


def _numbers(row: Any, largest: float) -> bool:
    return (
        isinstance(row, list | tuple)
        and 2 <= len(row) <= MOST
        and all(
            isinstance(x, int | float) and not isinstance(x, bool) and abs(x) <= largest
            for x in row
        )
    )


def tensors(found: dict[str, Any]) -> tuple[Tensor, Tensor, int]:
    """The input's logits and bias in double precision, and k."""
    return torch.tensor(found["logits"]).double(), torch.tensor(found["bias"]).double(), found["k"]
