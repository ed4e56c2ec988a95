"""arithmetic_intensity-flash: causal attention over blocks of keys, with a state whose size does not grow with them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import torch

from twophase.checks.answer import Answer
from twophase.checks.arithmetic_intensity._data import NEG_INF, normal
from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise, Misconception

Tensor = torch.Tensor
State = list[Tensor]
SPARE = 16  # numbers that a state may hold beside T·(H + 2)


def start(T: int, H: int) -> State:
    """Out, running maximum, running sum."""
    return [torch.zeros(T, H), torch.full((T,), NEG_INF), torch.zeros(T)]


def finish(state: State) -> Tensor:
    return state[0] / state[2][:, None]


def right_scores(q: Tensor, k: Tensor, key_start: int, query_start: int) -> Tensor:
    """Scaled and masked, [T, n]."""
    scores = q @ k.T / math.sqrt(q.shape[1])
    future = torch.arange(key_start, key_start + len(k)) > torch.arange(query_start, query_start + len(q))[:, None]
    return scores.masked_fill(future, NEG_INF)


def right_merge(state: State, scores: Tensor, v: Tensor) -> State:
    out, m, l = state
    m_new = torch.maximum(m, scores.amax(-1))
    safe = torch.where(m_new == NEG_INF, 0.0, m_new)
    old, weights = torch.exp(m - safe), torch.exp(scores - safe[:, None])
    return [out * old[:, None] + weights @ v, m_new, l * old + weights.sum(-1)]


def _flash(
    scores: Callable[[Tensor, Tensor, int, int], Tensor] = right_scores,
    merge: Callable[[State, Tensor, Tensor], State] = right_merge,
    last: Callable[[State], Tensor] = finish,
) -> dict[str, Callable[..., Any]]:
    """The three functions with parts replaced; with none replaced they are right."""

    def add_block(state: State, q: Tensor, k: Tensor, v: Tensor, key_start: int, query_start: int) -> State:
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


def out_not_rescaled(state: State, scores: Tensor, v: Tensor) -> State:
    _, m, l = right_merge(state, scores, v)
    safe = torch.where(m == NEG_INF, 0.0, m)
    return [state[0] + torch.exp(scores - safe[:, None]) @ v, m, l]


def nothing_rescaled(state: State, scores: Tensor, v: Tensor) -> State:
    out, m, _ = out_not_rescaled(state, scores, v)
    safe = torch.where(m == NEG_INF, 0.0, m)
    return [out, m, state[2] + torch.exp(scores - safe[:, None]).sum(-1)]


def divided_per_block(state: State, scores: Tensor, v: Tensor) -> State:
    """Each block's own softmax, added up; the final division is by the number of blocks that a query saw."""
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


def keeps_the_keys() -> dict[str, Callable[..., Any]]:
    """Right numbers from a state that holds every key and value."""

    def add_block(state: list[Any], q: Tensor, k: Tensor, v: Tensor, key_start: int, query_start: int) -> list[Any]:
        return [*state, [right_scores(q, k, key_start, query_start), v]]

    def last(state: list[Any]) -> Tensor:
        return torch.cat([s for s, _ in state], -1).softmax(-1) @ torch.cat([v for _, v in state])

    return {"start": lambda T, H: [], "add_block": add_block, "finish": last}


def size(state: Any) -> float:
    """How many numbers a state holds; infinite for anything that is no number, tensor, array, list, tuple or dict."""
    if state is None or isinstance(state, bool | int | float):
        return 1
    if isinstance(state, Mapping):
        return sum(map(size, state.values()))
    if isinstance(state, list | tuple):
        return sum(map(size, state))
    return math.prod(state.shape) if hasattr(state, "shape") else math.inf


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """The output, and whether the state stayed as small as the task says. Blocks come in the order of the case."""
    q, k, v, blocks = case.args
    T, H = q.shape
    state, small = answer.call("start", T, H), True
    for first, n in blocks:
        keys, values = k[first : first + n], v[first : first + n]
        state = answer.call("add_block", state, q, keys, values, first, len(k) - T)
        small = small and size(state) <= T * (H + 2) + SPARE
    return {"the state stays within T·(H + 2) + 16 numbers": small, "output": answer.call("finish", state)}


def _case(
    rng: random.Random,
    name: str,
    T: int,
    H: int,
    blocks: list[tuple[int, int]],
    scale: float = 1.0,
    shift: float = 0.0,
    public: bool = True,
) -> Case:
    """Random queries, keys and values; `shift` is added to every score, by way of the first column."""
    S = sum(n for _, n in blocks)
    q, k, v = normal(rng, T, H, scale=scale), normal(rng, S, H, scale=scale), normal(rng, S, H)
    if shift:
        q[:, 0], k[:, 0] = math.sqrt(H), shift
    return Case(name, (q, k, v, blocks), public=public)


def cases(rng: random.Random) -> list[Case]:
    """Decode, prefill, a few queries over more keys; blocks in and out of order; scores in the hundreds."""
    return [
        _case(rng, "one query over two keys, one block", 1, 3, [(0, 2)]),
        _case(rng, "one query over 40 keys, blocks of 16", 1, 4, [(0, 16), (16, 16), (32, 8)]),
        _case(rng, "7 queries over 7 keys, blocks of 3", 7, 5, [(0, 3), (3, 3), (6, 1)]),
        _case(rng, "3 queries over 50 keys, blocks of 20", 3, 6, [(0, 20), (20, 20), (40, 10)]),
        _case(rng, "5 queries over 5 keys, last block first", 5, 4, [(3, 2), (0, 3)]),
        _case(rng, "scores of some hundreds", 2, 4, [(0, 9), (9, 9), (18, 4)], scale=14.0),
        _case(rng, "every score around −250", 2, 4, [(0, 5), (5, 4)], shift=-250.0),
        _case(rng, "61 keys, in any order", 6, 5, [(52, 9), (0, 13), (33, 19), (13, 20)], 3.0, public=False),
    ]


EXERCISE = Exercise(
    id="arithmetic_intensity-flash",
    title="Attention that never stores its scores",
    kind="kernel",
    points=5,
    minutes=25,
    entries=("start", "add_block", "finish"),
    cases=cases,
    observe=observe,
    reference=_flash(),
    compare=Tolerance(rtol=1e-3, atol=1e-4, why="fp32 scores of some hundreds leave four digits of an exponential"),
    misconceptions=(
        Misconception(
            "out_not_rescaled",
            _flash(merge=out_not_rescaled),
            "first attempts at FlashAttention",
            "You rescaled the sum and not the output: both were taken relative to the old maximum.",
        ),
        Misconception(
            "nothing_rescaled",
            _flash(merge=nothing_rescaled),
            "first attempts at FlashAttention",
            "Output and sum still belong to the old maximum: multiply both by exp(m − m_new) before you add to them.",
        ),
        Misconception(
            "divided_per_block",
            _flash(merge=divided_per_block),
            "averaging partial attentions",
            "You averaged the softmaxes of the blocks. A block with larger scores must weigh more: add up undivided, divide once.",
        ),
        Misconception(
            "never_divided",
            _flash(last=lambda state: state[0]),
            "plausible",
            "finish returned the weighted sum: divide it by the sum of the weights.",
        ),
        Misconception(
            "maximum_not_subtracted",
            _flash(merge=maximum_not_subtracted),
            "naive softmax",
            "exp of a score beyond 88 is infinite in fp32: subtract the running maximum.",
        ),
        Misconception(
            "maximum_starts_at_zero",
            {**_flash(), "start": start_from_zero},
            "plausible",
            "Your maximum starts at 0, as if a score of 0 had been seen: when all scores are far below, every exp is 0. Start at −inf.",
        ),
        Misconception(
            "masked_block_is_nan",
            _flash(merge=masked_block_is_nan),
            "fully masked rows (a classic of attention kernels)",
            "A query that sees no key of a block became NaN: with m still −inf, −inf − (−inf) has no value.",
        ),
        Misconception(
            "no_scale",
            _flash(scores=no_scale),
            "plausible",
            "The scores are not scaled: divide q·k by √H.",
        ),
        Misconception(
            "scale_by_width",
            _flash(scores=scale_by_width),
            "attention scaled by the wrong width",
            "You divided by H; the scale is √H, which keeps the variance of a score near 1.",
        ),
        Misconception(
            "no_mask",
            _flash(scores=no_mask),
            "plausible",
            "There is no mask: a query must not see keys after its own position.",
        ),
        Misconception(
            "top_left_mask",
            _flash(scores=top_left_mask),
            "causal mask aligned top-left when S > T",
            "Query t sits at position query_start + t, not at t: with a cache the queries are the last positions.",
        ),
        Misconception(
            "keys_from_zero",
            _flash(scores=keys_from_zero),
            "masks made per block",
            "You counted the keys of every block from 0: the first key of a block sits at key_start.",
        ),
        Misconception(
            "own_key_hidden",
            _flash(scores=own_key_hidden),
            "the cached step that excluded the current token",
            "A query sees its own key as well: positions up to and including query_start + t.",
        ),
        Misconception(
            "keeps_the_keys",
            keeps_the_keys(),
            "plausible",
            "The numbers are right, but the state grows with the keys: that is what FlashAttention avoids. Keep out, m and l.",
        ),
    ),
    hints=(
        "State: out [T, H], m [T], l [T], starting from 0, −inf, 0. It is online softmax with the values carried along.",
        "Per block: scores [T, n] = q kᵀ / √H, −inf where key_start + j > query_start + t; then m_new, and the factor exp(m − m_new).",
        "Both out and l are multiplied by that factor; out gains exp(scores − m_new) @ v, l its row sums. Where m_new is −inf "
        "subtract 0. finish: out / l.",
    ),
    recall=(
        "Which numbers per query does FlashAttention carry from one block of keys to the next?",
        "H + 2: the undivided output, the running maximum and the running sum.",
    ),
    withholds=(),
)
