"""Mixture of experts: a router sends each token to k of E gated MLPs and adds up what they return,
weighted.

The routers of Mixtral (arXiv 2401.04088, section 2.1), Qwen3-MoE, DeepSeek-V2 (arXiv 2405.04434,
section 2.2) and DeepSeek-V3 (arXiv 2412.19437, eq. 12 to 16) are one function with different
settings. Routers compute in fp32, as Switch Transformer found necessary (arXiv 2101.03961, section
2.4): which experts come next to last and last is decided by small differences.
"""

import math
from collections.abc import Callable

import torch

from twophase.kernels.attention_inputs import check_tensors
from twophase.kernels.mlp import ACTIVATIONS, gated_mlp
from twophase.kernels.span import whole

SCORES = ("softmax", "sigmoid")


def router_scores(logits: torch.Tensor, score: str = "softmax") -> torch.Tensor:
    """What the router thinks of each expert: logits [tokens, E] → fp32 [tokens, E], each in [0, 1].

    "softmax": the scores of a token sum to 1. "sigmoid": each expert is judged by itself.
    ValueError for another name.
    """
    if score not in SCORES:
        raise ValueError(f'a router scores by "softmax" or "sigmoid"; got "{score}".')
    logits = logits.float()
    return logits.softmax(dim=-1) if score == "softmax" else logits.sigmoid()


def route(
    logits: torch.Tensor,
    k: int,
    *,
    score: str = "softmax",
    normalize: bool = True,
    scale: float = 1.0,
    groups: int = 1,
    groups_kept: int = 1,
    group_top: int = 1,
    bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The k experts of each token and their weights: logits [tokens, E] → int64 [tokens, k], fp32
    [tokens, k].

    The k best scores win; a winner's weight is its score, divided by the k scores' sum if
    `normalize`, times `scale`. `bias` [E] is added to the scores for the choice only, not for the
    weights: it balances the load without changing what an expert says (DeepSeek-V3). With `groups`
    > 1 the experts stand in as many groups of neighbors; only the `groups_kept` best groups take
    part, and a group is as good as the sum of its `group_top` best experts. Gradients reach the
    logits through the weights. A token whose logits hold NaN gets weights that are NaN, and the
    others of its batch lose nothing. Raises ValueError where E, k and the groups do not fit, or for
    a scale that is not positive.
    """
    check_tensors("a router", logits, *(() if bias is None else (bias,)))
    E = logits.shape[-1] if logits.ndim == 2 else 0
    if not E or (bias is not None and bias.shape != (E,)):
        raise ValueError(
            "a router takes logits [tokens, E] with E of at least 1, and a bias [E] or none; got"
            f" {list(logits.shape)} and {None if bias is None else list(bias.shape)}."
        )
    if not 0 < scale < math.inf:
        raise ValueError(f"weights are multiplied with a positive scale; got {scale}.")
    check_routing(E, k, groups, groups_kept, group_top)
    scores = router_scores(logits, score)  # [tokens, E]
    choice = scores.detach() if bias is None else scores.detach() + bias.float()  # [tokens, E]
    if groups_kept < groups:
        choice = _keep_best_groups(choice, groups, groups_kept, group_top)  # [tokens, E]
    experts = choice.topk(k, dim=-1).indices  # [tokens, k]
    weights = scores.gather(-1, experts)  # [tokens, k]
    if normalize:
        weights = weights / (
            weights.sum(dim=-1, keepdim=True) + 1e-20
        )  # k sigmoids may all have rounded to 0
    return experts, weights * scale


def check_routing(
    E: int, k: int, groups: int = 1, groups_kept: int = 1, group_top: int = 1
) -> None:
    """Raise ValueError with one sentence unless k experts can be found among E, in so many
    groups."""
    for name, n in (("groups_kept", groups_kept), ("group_top", group_top), ("k", k)):
        whole(name, n, 0)
    if whole("groups", groups, 0) < 1 or E % groups:
        raise ValueError(f"the {E} experts do not fall into {groups} groups of one size.")
    if not 1 <= groups_kept <= groups:
        raise ValueError(f"a router keeps between 1 and {groups} groups; got {groups_kept}.")
    size = E // groups
    if not 1 <= group_top <= size:
        raise ValueError(f"a group of {size} experts cannot be judged by its best {group_top}.")
    if not 1 <= k <= groups_kept * size:
        raise ValueError(
            f"a token visits between 1 and {groups_kept * size} experts here; k is {k}."
        )


def _keep_best_groups(choice: torch.Tensor, groups: int, kept: int, top: int) -> torch.Tensor:
    """`choice` [tokens, E] with -inf for every expert outside the `kept` best groups of its
    token."""
    grouped = choice.view(*choice.shape[:-1], groups, -1)  # [tokens, groups, E / groups]
    value = grouped.topk(top, dim=-1).values.sum(dim=-1)  # [tokens, groups]
    best = value.topk(kept, dim=-1).indices  # [tokens, kept]
    outside: torch.Tensor = torch.ones_like(value, dtype=torch.bool).scatter(
        -1, best, False
    )  # [tokens, groups]
    return grouped.masked_fill(outside[..., None], -torch.inf).flatten(-2)  # [tokens, E]


def run_experts(
    x: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    w_gate: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
    *,
    activation: str = "silu",
) -> torch.Tensor:
    """What each token's experts return, times their weights, summed: [tokens, D].

    x: [tokens, D]; experts, weights: [tokens, k] as `route` returns them; w_gate, w_up: [E, F, D];
    w_down: [E, D, F]. 6·D·F FLOPs per visit, and the weights of experts that nobody visits are
    never read. Sums in fp32; returns the dtype of x. ValueError if shapes do not fit.
    """
    check_shapes(x, experts, weights, w_gate, w_up, w_down)
    if torch.is_grad_enabled():
        # one gradient [E, F, D] at the end, rather than one of that size for each expert
        w_gate, w_up, w_down = w_gate.unbind(), w_up.unbind(), w_down.unbind()  # type: ignore[assignment]

    def run(e: int, rows: torch.Tensor) -> torch.Tensor:
        return gated_mlp(rows, w_gate[e], w_up[e], w_down[e], activation=activation)

    return visit(x, experts, weights, len(w_gate), run)


def run_all_experts(
    x: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    w_gate: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
    *,
    activation: str = "silu",
) -> torch.Tensor:
    """The same sum, if all answers are finite: every expert is run on every token, and what nobody
    asked for is weighted with 0.

    E / k times the FLOPs of `run_experts`, in three products whose sizes do not depend on the
    choice: nothing waits for counts, so that a step of training can be captured on a card. A
    gradient keeps E / k times the activations, too. Nothing looks at the numbers in `experts`,
    which are as `route` returns them: torch fails on others in its own way. ValueError if shapes do
    not fit, or for an activation that is not in ACTIVATIONS.
    """
    check_shapes(x, experts, weights, w_gate, w_up, w_down)
    if activation not in ACTIVATIONS:
        raise ValueError(f'unknown activation "{activation}"; known: {", ".join(ACTIVATIONS)}.')
    every = x.expand(len(w_gate), *x.shape)  # [E, tokens, D]
    gate = ACTIVATIONS[activation](every @ w_gate.mT)  # [E, tokens, F]
    answers = (gate * (every @ w_up.mT)) @ w_down.mT  # [E, tokens, D]
    share = weights.new_zeros(len(x), len(w_gate)).scatter_add(1, experts, weights)  # [tokens, E]
    return (answers * share.mT[..., None]).sum(dim=0).to(x.dtype)  # [tokens, D]


def visit(
    x: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    E: int,
    run: Callable[[int, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """The same for experts of any making: `run(e, rows)` is what expert e makes of its visitors,
    [visits, D] → [visits, D]. ValueError unless x is [tokens, D] and experts and weights [tokens,
    k].

    Tokens are sorted by expert, so that each expert that anyone visits meets all its visitors at
    once, and the others are not called.
    """
    if x.ndim != 2 or experts.ndim != 2 or experts.shape != weights.shape or len(experts) != len(x):
        raise ValueError(
            "visits need x [tokens, D] and experts, weights [tokens, k]; got"
            f" {list(x.shape)}, {list(experts.shape)}, {list(weights.shape)}."
        )
    n, k = experts.shape
    order, counts = by_expert(experts, E)  # [n·k], and visits per expert
    whose = order.div(k, rounding_mode="floor")  # [n·k]: visit i is of token i // k
    touched = [e for e, count in enumerate(counts) if count]
    parts = torch.split(x.index_select(0, whose), [counts[e] for e in touched])
    answers = [run(e, rows) for e, rows in zip(touched, parts, strict=True)]
    place = torch.arange(n * k, device=order.device)  # [n·k]
    back = torch.empty_like(order).scatter_(0, order, place)  # [n·k]
    y = torch.cat(answers).index_select(0, back).view(n, k, -1)  # [n, k, D]
    return (y * weights[..., None]).sum(dim=1).to(x.dtype)  # [n, D]


def by_expert(experts: torch.Tensor, E: int) -> tuple[torch.Tensor, list[int]]:
    """The visits of `experts` [tokens, k], numbered row by row, in the order of their experts; and
    how many each has. ValueError for a number that is none of an expert."""
    E = whole("the number of experts", E, 1)
    if experts.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"experts are int64, as of `route`; got {experts.dtype}.")
    if experts.is_meta:
        raise ValueError(
            "which experts run depends on the numbers in x, and a meta tensor has none: use a real"
            " device."
        )
    visits = experts.flatten()  # [tokens·k]
    counts = torch.bincount(visits, minlength=E).tolist()
    if len(counts) > E:
        raise ValueError(
            f"a token is sent to expert {len(counts) - 1}, but there are {E}, counted from 0."
        )
    return visits.argsort(stable=True), counts


def check_shapes(
    x: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    w_gate: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
) -> None:
    """Raise ValueError with one sentence unless the arguments of `run_experts` fit."""
    check_tensors("run_experts", x, weights, w_gate, w_up, w_down)
    if not isinstance(experts, torch.Tensor) or experts.dtype not in (torch.int64, torch.int32):
        got = getattr(experts, "dtype", type(experts).__name__)
        raise ValueError(f"experts are an int64 tensor [tokens, k], as of `route`; got {got}.")
    if x.ndim != 2 or experts.ndim != 2 or experts.shape != weights.shape or len(experts) != len(x):
        raise ValueError(
            "run_experts needs x [tokens, D] and experts, weights [tokens, k]; "
            f"got {list(x.shape)}, {list(experts.shape)}, {list(weights.shape)}."
        )
    if (
        w_gate.ndim != 3
        or w_up.shape != w_gate.shape
        or w_down.shape != w_gate.mT.shape
        or w_gate.shape[2] != x.shape[1]
    ):
        raise ValueError(
            f"run_experts needs w_gate, w_up [E, F, D] and w_down [E, D, F] with D = {x.shape[1]}; "
            f"got {list(w_gate.shape)}, {list(w_up.shape)}, {list(w_down.shape)}."
        )


def load_balance_loss(scores: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
    """How unevenly a batch uses its experts: E · Σ f_i · P_i, a scalar (Switch Transformer, arXiv
    2101.03961, eq. 4 to 6).

    scores: [tokens, E] from `router_scores`; each row is divided by its sum, which changes sigmoids
    only (DeepSeek-V3, eq. 17 to 20). experts: [tokens, k]. f_i is the share of all visits that
    expert i gets, P_i its mean score. 1 if either is the same for all experts; at most E/k, when
    all tokens visit the same k and one has all the score. Switch has k = 1; for k > 1 some count
    f_i per token rather than per visit, and their loss is k times this one. Gradients come through
    P alone: counting has none. ValueError if shapes do not fit, or without a token.
    """
    check_tensors("the loss", scores)
    if not scores.ndim == experts.ndim == 2 or len(scores) != len(experts) or not len(scores):
        raise ValueError(
            "balance is of scores [tokens, E] and experts [tokens, k] of the same tokens; got"
            f" {list(scores.shape)} and {list(experts.shape)}."
        )
    E = scores.shape[-1]
    visits = experts.flatten()  # [tokens·k]
    # as torch.bincount counts, which on a card waits for the largest number
    f = scores.new_zeros(E).scatter_add_(0, visits, scores.new_ones(len(visits)))  # [E]
    f = f / len(visits)  # [E]
    P = (scores / scores.sum(dim=-1, keepdim=True)).mean(dim=0)  # [E]
    return E * (f * P).sum()
