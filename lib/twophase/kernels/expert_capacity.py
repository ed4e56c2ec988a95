"""Experts with room for so many visitors each: tokens fall into bins of equal size, and what finds
its bin full is dropped.

Bins of equal size make one batched product of all experts, as GShard (arXiv 2006.16668) and Switch
Transformer (arXiv 2101.03961, section 2.2) run them: the shapes are known before the router has
spoken. The price: empty places are computed as well, all experts are read, and a token that finds
no room gets nothing from that expert (the residual stream carries it on).
`mixture_of_experts.run_experts` sorts instead, and drops nobody.
"""

import torch

from twophase.kernels.mixture_of_experts import check_shapes
from twophase.kernels.span import whole

DROPPED = -1


def seats(
    experts: torch.Tensor, E: int, capacity: int, *, first_choices_first: bool = False
) -> torch.Tensor:
    """The place of each visit in its expert's bin, from 0, or DROPPED: int64 [tokens, k].

    experts: int64 [tokens, k], each row distinct, best first. Who comes first is served first:
    token by token, or with `first_choices_first` all tokens' best experts before any second one, as
    in GShard. ValueError for a negative capacity and for experts that there are not.
    """
    capacity = whole("the capacity of a bin", capacity, 0)
    if experts.ndim != 2 or (experts.numel() and int(experts.min()) < 0):
        raise ValueError(f"seats needs experts [tokens, k], from 0; got {list(experts.shape)}.")
    if experts.numel() and int(experts.max()) >= E:
        raise ValueError(
            f"a token is sent to expert {int(experts.max())}, but there are {E}, counted from 0."
        )
    order = experts.T if first_choices_first else experts
    visits = torch.nn.functional.one_hot(order.flatten(), E)  # [tokens·k, E]
    before = visits.cumsum(dim=0) - visits  # [tokens·k, E]: earlier visits to each expert
    place = (before * visits).sum(dim=-1)  # [tokens·k]
    place = place.where(place < capacity, torch.full_like(place, DROPPED)).view(order.shape)
    return place.T.contiguous() if first_choices_first else place  # [tokens, k]


def dispatch(
    x: torch.Tensor, experts: torch.Tensor, place: torch.Tensor, E: int, capacity: int
) -> torch.Tensor:
    """Every token in the bins of its experts, zeros where nobody sits: x [tokens, D] → [E,
    capacity, D]. `place` as `seats` returns it. ValueError if shapes do not fit."""
    E, capacity = whole("the number of experts", E, 1), whole("the capacity of a bin", capacity, 0)
    _check_seats(experts, place, len(x))
    kept = place != DROPPED  # [tokens, k]
    token = torch.arange(len(x), device=x.device)[:, None].expand_as(experts)  # [tokens, k]
    bins = x.new_zeros(E, capacity, x.shape[1])
    bins[experts[kept], place[kept]] = x[token[kept]]
    return bins


def combine(
    answers: torch.Tensor, experts: torch.Tensor, place: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """What each token's experts said of it, times its weights, summed: answers [E, capacity, D],
    weights [tokens, k] → [tokens, D]. A dropped visit adds nothing; the weights of the others stay
    as they are. ValueError if shapes do not fit."""
    _check_seats(experts, place, len(weights))
    if weights.shape != experts.shape or answers.ndim != 3:
        raise ValueError(
            "answers are combined from [E, capacity, D] with weights [tokens, k]; got"
            f" {list(answers.shape)} and {list(weights.shape)} for experts {list(experts.shape)}."
        )
    y = weights.new_zeros(*experts.shape, answers.shape[-1])  # [tokens, k, D]
    kept = place != DROPPED
    y[kept] = answers[experts[kept], place[kept]].to(y.dtype)
    return (y * weights[..., None]).sum(dim=1).to(answers.dtype)  # [tokens, D]


def _check_seats(experts: torch.Tensor, place: torch.Tensor, n: int) -> None:
    if experts.ndim != 2 or experts.shape != place.shape or len(experts) != n:
        raise ValueError(
            f"{n} tokens have experts and places [{n}, k]; got {list(experts.shape)} and"
            f" {list(place.shape)}."
        )


def run_in_bins(
    x: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    w_gate: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
    capacity: int,
    *,
    first_choices_first: bool = False,
) -> torch.Tensor:
    """The same as `mixture_of_experts.run_experts`, in bins: [tokens, D], equal where nobody is
    dropped. 6·D·F FLOPs for each place of a bin, taken or not. ValueError if shapes do not fit."""
    check_shapes(x, experts, weights, w_gate, w_up, w_down)
    E = len(w_gate)
    place = seats(experts, E, capacity, first_choices_first=first_choices_first)
    bins = dispatch(x, experts, place, E, capacity)  # [E, capacity, D]
    hidden = torch.nn.functional.silu(bins @ w_gate.mT) * (bins @ w_up.mT)  # [E, capacity, F]
    return combine(hidden @ w_down.mT, experts, place, weights)
