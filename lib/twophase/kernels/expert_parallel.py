"""Experts dealt out to ranks: tokens travel to their experts and back, twice all-to-all (GShard,
arXiv 2006.16668; DeepSeek-V3, arXiv 2412.19437, section 3.4)."""

import torch

from twophase.kernels.collectives import Comm
from twophase.kernels.mixture_of_experts import check_shapes, run_experts


def expert_parallel(
    comm: Comm,
    x: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    w_gate: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
) -> torch.Tensor:
    """One rank's tokens through the experts of all ranks: [tokens, D].

    x [tokens, D], experts and weights [tokens, k] are this rank's own tokens, as many as it has (0
    will do), with experts numbered over all ranks; w_gate, w_up [E/n, F, D] and w_down [E/n, D, F]
    are the experts that it holds, those from rank · E/n on. Every visit travels by itself, D
    numbers each way, with the number of its expert beside it; what stays on the rank is not sent.
    """
    check_shapes(x, experts, weights, w_gate, w_up, w_down)
    held = len(w_gate)
    home = experts.div(held, rounding_mode="floor")  # [tokens, k]: the rank of each visit
    if experts.numel() and not 0 <= int(home.min()) <= int(home.max()) < comm.size:
        raise ValueError(
            f"{comm.size} ranks with {held} experts each have experts 0 to {comm.size * held - 1};"
            f" a token is sent to {int(experts.max())}."
        )
    visits = [(home == r).nonzero(as_tuple=True) for r in range(comm.size)]  # (token, choice) each
    rows = comm.all_to_all([x[token] for token, _ in visits])  # [visits, D] from each rank
    which = comm.all_to_all([experts[at] % held for at in visits])  # [visits] from each rank
    mine, of = torch.cat(rows), torch.cat(which)  # [visits, D], [visits]
    answers = torch.empty_like(mine)
    if len(mine):
        once = weights.new_ones(len(mine), 1)
        answers = run_experts(mine, of[:, None], once, w_gate, w_up, w_down)
    back = comm.all_to_all(torch.split(answers, [len(part) for part in rows]))
    y = weights.new_empty(*experts.shape, x.shape[1])  # [tokens, k, D]
    for at, answer in zip(visits, back, strict=True):
        y[at] = answer.to(y.dtype)
    return (y * weights[..., None]).sum(dim=1).to(x.dtype)  # [tokens, D]
