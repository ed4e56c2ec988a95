"""arithmetic_intensity-flash: causal attention over blocks of keys, with a state whose size does
not grow with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.arithmetic_intensity import _blockwise as b
from twophase.checks.arithmetic_intensity._sequences import cases
from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

SPARE = 16  # numbers that a state may hold beside T·(H + 2)
LETTERS = 200  # in all keys of a state together


def size(state: Any) -> float:
    """How many numbers a state holds; infinite for anything that is no number, tensor, array, list,
    tuple or dict, and for an enormous integer.

    What holds no number counts as one, and a shape as its own numbers: many empty tensors could
    hold much.
    """
    if state is None or isinstance(state, bool | float):
        return 1
    if isinstance(state, int):
        return 1 if state.bit_length() <= 64 else math.inf
    if isinstance(state, Mapping):
        numbers = [key for key in state if not isinstance(key, str)]
        return max(1, sum(map(size, [*numbers, *state.values()])))
    if isinstance(state, list | tuple):
        return max(1, sum(map(size, state)))
    shape = getattr(state, "shape", None)
    return math.inf if shape is None else max(1, len(shape), math.prod(shape))


def letters(state: Any) -> int:
    """How long all words are that stand as keys in a state."""
    if isinstance(state, Mapping):
        return sum(len(k) for k in state if isinstance(k, str)) + letters([*state.values()])
    return sum(map(letters, state)) if isinstance(state, list | tuple) else 0


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """The outputs, and whether every state stayed as small as the task says. The case lists the
    calls; a state keeps its name until another one takes it."""
    (steps,) = case.args
    states: dict[str, Any] = {}
    small = True
    for function, *given in steps:
        if function == "start":
            name, T, H = given
            states[name] = answer.call("start", T, H)
        else:
            old, new, q, *block = given
            states[new] = answer.call("add_block", states[old], q, *block)
            small = small and size(states[new]) <= q.numel() + 2 * len(q) + SPARE
            small = small and letters(states[new]) <= LETTERS
    seen: dict[str, Any] = {"the state stays within T·(H + 2) + 16 numbers": small}
    for name in (n for n in ("one", "two") if n in states):
        seen[f"output {name}"] = answer.call("finish", states[name])
    return seen


wrong.add(
    "out_not_rescaled",
    b.blockwise(merge=b.out_not_rescaled),
    "first attempts at FlashAttention",
    "You rescaled the sum and not the output: both were taken relative to the old maximum.",
)
wrong.add(
    "nothing_rescaled",
    b.blockwise(merge=b.nothing_rescaled),
    "first attempts at FlashAttention",
    "Output and sum still belong to the old maximum: multiply both by exp(m − m_new) before you"
    " add to them.",
)
wrong.add(
    "divided_per_block",
    b.blockwise(merge=b.divided_per_block),
    "averaging partial attentions",
    "You averaged the softmaxes of the blocks. A block with larger scores must weigh more: add up"
    " undivided, divide once.",
)
wrong.add(
    "never_divided",
    b.blockwise(last=lambda state: state[0]),
    "plausible",
    "finish returned the weighted sum: divide it by the sum of the weights.",
)
wrong.add(
    "maximum_not_subtracted",
    b.blockwise(merge=b.maximum_not_subtracted),
    "naive softmax",
    "exp of a score beyond 88 is infinite in fp32: subtract the running maximum.",
)
wrong.add(
    "maximum_starts_at_zero",
    {**b.blockwise(), "start": b.start_from_zero},
    "plausible",
    "Your maximum starts at 0, as if a score of 0 had been seen: when all scores are far below,"
    " every exp is 0. Start at −inf.",
)
wrong.add(
    "one_maximum_for_all",
    b.blockwise(merge=b.one_maximum_for_all),
    "amax() without a dimension",
    "You subtract one maximum for all queries: every query has its own, and one far below the"
    " others would become 0 / 0.",
)
wrong.add(
    "maximum_of_hidden_keys",
    b.maximum_of_hidden_keys(),
    "kernels that mask after the maximum",
    "Your maximum counts keys that the query does not see: where one of them has a far larger"
    " score, all others become 0 / 0. Mask first.",
)
wrong.add(
    "masked_block_is_nan",
    b.blockwise(merge=b.masked_block_is_nan),
    "fully masked rows (a classic of attention kernels)",
    "A query that sees no key of a block became NaN: while m is −inf, −inf − (−inf) has no value,"
    " and while l is 0, 0 / 0 has none.",
)
wrong.add(
    "no_scale",
    b.blockwise(scores=b.no_scale),
    "plausible",
    "The scores are not scaled: divide q·k by √H.",
)
wrong.add(
    "scale_by_width",
    b.blockwise(scores=b.scale_by_width),
    "attention scaled by the wrong width",
    "You divided by H; the scale is √H, which keeps the variance of a score near 1.",
)
wrong.add(
    "no_mask",
    b.blockwise(scores=b.no_mask),
    "plausible",
    "There is no mask: a query must not see keys after its own position.",
)
wrong.add(
    "top_left_mask",
    b.blockwise(scores=b.top_left_mask),
    "causal mask aligned top-left when S > T",
    "Query t sits at position query_start + t, not at t: with a cache the queries are the last"
    " positions.",
)
wrong.add(
    "keys_from_zero",
    b.blockwise(scores=b.keys_from_zero),
    "masks made per block",
    "You counted the keys of every block from 0: the first key of a block sits at key_start.",
)
wrong.add(
    "own_key_hidden",
    b.blockwise(scores=b.own_key_hidden),
    "the cached step that excluded the current token",
    "A query sees its own key as well: positions up to and including query_start + t.",
)
wrong.add(
    "masked_at_minus_100",
    b.blockwise(scores=b.masked_at_minus_100),
    "masks of −100 for −inf",
    "You hide a key with a score of −100. Where all visible scores lie below that, the hidden keys"
    " get the weight: use −inf.",
)
wrong.add(
    "positions_wrap",
    b.blockwise(scores=b.positions_wrap),
    "tables of 2,048 positions",
    "Your positions start again after 2,048: compare key_start + j with query_start + t as they"
    " are, however large.",
)
wrong.add(
    "own_memory",
    b.own_memory(),
    "caches kept in a global",
    "What you need later has to be in the state. Here the judge went on twice from one state, and"
    " the second time found what the first had left.",
)
wrong.add(
    "keeps_the_keys",
    b.keeps_the_keys(),
    "plausible",
    "The numbers are right, but the state grows with the keys: that is what FlashAttention avoids."
    " Keep out, m and l.",
)


EXERCISE = Exercise(
    id="arithmetic_intensity-flash",
    title="Attention that never stores its scores",
    kind="kernel",
    points=5,
    minutes=25,
    entries=("start", "add_block", "finish"),
    cases=cases,
    observe=observe,
    reference=b.blockwise(),
    compare=Tolerance(
        rtol=5e-4,
        atol=5e-5,
        dtype=True,
        why="fp32 scores of some hundreds leave four digits of an exponential",
    ),
    misconceptions=tuple(wrong),
    hints=(
        (
            "State: out [T, H], m [T], l [T], starting from 0, −inf, 0. It is online softmax with"
            " the values carried along."
        ),
        (
            "Per block: scores [T, n] = q kᵀ / √H, −inf where key_start + j > query_start + t; then"
            " m_new, and the factor exp(m − m_new)."
        ),
        (
            "Both out and l are multiplied by that factor; out gains exp(scores − m_new) @ v, l its"
            " row sums. Where m_new is −inf subtract 0. finish: out / l."
        ),
    ),
    ranges={"add_block.k.shape[0]": (1, 257), "add_block.key_start": (0, 200_000)},
    recall=(
        "Which numbers per query does FlashAttention carry from one block of keys to the next?",
        "H + 2: the undivided output, the running maximum and the running sum.",
    ),
    relayed=True,
)
