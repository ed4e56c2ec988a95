"""Attention over blocks of keys for arithmetic_intensity-flash, in parts: the right ones, and those
that people get wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from twophase.checks.arithmetic_intensity._data import NEG_INF

Tensor = torch.Tensor
State = list[Tensor]


def start(T: int, H: int) -> State:
    """Out, running maximum, running sum."""
    return [torch.zeros(T, H), torch.full((T,), NEG_INF), torch.zeros(T)]


def finish(state: State) -> Tensor:
    return state[0] / state[2][:, None]


def right_scores(q: Tensor, k: Tensor, key_start: int, query_start: int) -> Tensor:
    """Scaled and masked, [T, n]."""
    scores = q @ k.T / math.sqrt(q.shape[1])
    future = (
        torch.arange(key_start, key_start + len(k))
        > torch.arange(query_start, query_start + len(q))[:, None]
    )
    return scores.masked_fill(future, NEG_INF)


def right_merge(state: State, scores: Tensor, v: Tensor) -> State:
    out, m, l = state
    m_new = torch.maximum(m, scores.amax(-1))
    safe = torch.where(m_new == NEG_INF, 0.0, m_new)
    old, weights = torch.exp(m - safe), torch.exp(scores - safe[:, None])
    return [out * old[:, None] + weights @ v, m_new, l * old + weights.sum(-1)]


def blockwise(
    scores: Callable[[Tensor, Tensor, int, int], Tensor] = right_scores,
    merge: Callable[[State, Tensor, Tensor], State] = right_merge,
    last: Callable[[State], Tensor] = finish,
) -> dict[str, Callable[..., Any]]:
    """The three functions with parts replaced; with none replaced they are right."""

    def add_block(
        state: State, q: Tensor, k: Tensor, v: Tensor, key_start: int, query_start: int
    ) -> State:
        return merge(state, scores(q, k, key_start, query_start), v)

    return {"start": start, "add_block": add_block, "finish": last}


def no_scale(q: Tensor, k: Tensor, key_start: int, query_start: int) -> Tensor:
    return right_scores(q * math.sqrt(q.shape[1]), k, key_start, query_start)


def scale_by_width(q: Tensor, k: Tensor, key_start: int, query_start: int) -> Tensor:
    return right_scores(q / math.sqrt(q.shape[1]), k, key_start, query_start)


def no_mask(q: Tensor, k: Tensor, key_start: int, query_start: int) -> Tensor:
    return right_scores(q, k, key_start, key_start + len(k))


def top_left_mask(q: Tensor, k: Tensor, key_start: int, query_start: int) -> Tensor:
    return right_scores(q, k, key_start, 0)


def keys_from_zero(q: Tensor, k: Tensor, key_start: int, query_start: int) -> Tensor:
    return right_scores(q, k, 0, query_start)


def own_key_hidden(q: Tensor, k: Tensor, key_start: int, query_start: int) -> Tensor:
    return right_scores(q, k, key_start, query_start - 1)


def masked_at_minus_100(q: Tensor, k: Tensor, key_start: int, query_start: int) -> Tensor:
    """−100 where the mask is, for −inf."""
    scores = right_scores(q, k, key_start, query_start)
    return scores.masked_fill(scores == NEG_INF, -100.0)


def positions_wrap(q: Tensor, k: Tensor, key_start: int, query_start: int) -> Tensor:
    """Positions looked up in a table of 2,048."""
    scores = right_scores(q, k, 0, len(k))  # nothing masked yet
    keys = torch.arange(key_start, key_start + len(k)) % 2048
    queries = torch.arange(query_start, query_start + len(q)) % 2048
    return scores.masked_fill(keys > queries[:, None], NEG_INF)


def own_memory() -> dict[str, Callable[..., Any]]:
    """Keeps the running values to itself: the state is no more than a number that finds them."""
    right, kept = blockwise(), list[State]()

    def first(T: int, H: int) -> int:
        kept.append(start(T, H))
        return len(kept) - 1

    def add_block(state: int, *block: Any) -> int:
        kept[state] = right["add_block"](kept[state], *block)
        return state

    return {"start": first, "add_block": add_block, "finish": lambda state: finish(kept[state])}


def out_not_rescaled(state: State, scores: Tensor, v: Tensor) -> State:
    _, m, l = right_merge(state, scores, v)
    safe = torch.where(m == NEG_INF, 0.0, m)
    return [state[0] + torch.exp(scores - safe[:, None]) @ v, m, l]


def nothing_rescaled(state: State, scores: Tensor, v: Tensor) -> State:
    out, m, _ = out_not_rescaled(state, scores, v)
    safe = torch.where(m == NEG_INF, 0.0, m)
    return [out, m, state[2] + torch.exp(scores - safe[:, None]).sum(-1)]


def divided_per_block(state: State, scores: Tensor, v: Tensor) -> State:
    """Each block's own softmax, added up; the final division is by the number of blocks that a
    query saw."""
    out, m, l = state
    seen = (scores > NEG_INF).any(-1)
    return [out + scores.softmax(-1).nan_to_num(0.0) @ v, m, l + seen]


def masked_block_is_nan(state: State, scores: Tensor, v: Tensor) -> State:
    out, m, l = state
    m_new = torch.maximum(m, scores.amax(-1))
    old, weights = torch.exp(m - m_new), torch.exp(scores - m_new[:, None])
    return [out * old[:, None] + weights @ v, m_new, l * old + weights.sum(-1)]


def maximum_not_subtracted(state: State, scores: Tensor, v: Tensor) -> State:
    out, m, l = state
    weights = torch.exp(scores)
    return [out + weights @ v, m, l + weights.sum(-1)]


def start_from_zero(T: int, H: int) -> State:
    return [torch.zeros(T, H), torch.zeros(T), torch.zeros(T)]


def maximum_of_hidden_keys() -> dict[str, Callable[..., Any]]:
    """Takes the maximum before it masks."""

    def add_block(
        state: State, q: Tensor, k: Tensor, v: Tensor, key_start: int, query_start: int
    ) -> State:
        out, m, l = state
        m_new = torch.maximum(m, no_mask(q, k, key_start, query_start).amax(-1))
        old = torch.exp(m - m_new)
        weights = torch.exp(right_scores(q, k, key_start, query_start) - m_new[:, None])
        return [out * old[:, None] + weights @ v, m_new, l * old + weights.sum(-1)]

    return {"start": start, "add_block": add_block, "finish": finish}


def keeps_the_keys() -> dict[str, Callable[..., Any]]:
    """Right numbers from a state that holds every key and value."""

    def add_block(
        state: list[Any], q: Tensor, k: Tensor, v: Tensor, key_start: int, query_start: int
    ) -> list[Any]:
        return [*state, [right_scores(q, k, key_start, query_start), v]]

    def last(state: list[Any]) -> Tensor:
        return torch.cat([s for s, _ in state], -1).softmax(-1) @ torch.cat([v for _, v in state])

    return {"start": lambda T, H: [], "add_block": add_block, "finish": last}


def one_maximum_for_all(state: State, scores: Tensor, v: Tensor) -> State:
    """The largest score of all queries is subtracted from every one's."""
    out, m, l = state
    top = torch.maximum(m.max(), scores.max())
    safe = torch.where(top == NEG_INF, 0.0, top)
    old, weights = torch.exp(m - safe), torch.exp(scores - safe)
    return [out * old[:, None] + weights @ v, top.expand_as(m), l * old + weights.sum(-1)]
