"""All experts that a batch touches in one kernel: a grouped matrix product.

`mixture_of_experts.run_experts` makes three products per touched expert, each with an expert's few
visitors. In a decode step these are many small calls. Here the visits are sorted by expert and one
loop goes over the rows of all touched experts: every row is read once, and used for all visitors of
its expert while it is at hand. What is read, and what is computed, stays the same.
"""

import math

import numba
import numpy as np
import torch

from twophase.kernels.compiled.compiling import compiled
from twophase.kernels.mixture_of_experts import by_expert, check_shapes

# Sums in any order and fused with products; NaN and inf are respected.
FLAGS = {"reassoc", "contract", "nsz"}


@compiled(parallel=True, fastmath=FLAGS, error_model="numpy")
def _grouped_mlp(
    x: np.ndarray,
    touched: np.ndarray,
    starts: np.ndarray,
    w_gate: np.ndarray,
    w_up: np.ndarray,
    w_down: np.ndarray,
    between: np.ndarray,
    y: np.ndarray,
) -> None:
    """y [visits, D] = the gated MLP of its expert for each row of x [visits, D]; the visits of
    expert touched[i] are the rows from starts[i] to starts[i + 1]. between [visits, F] is
    scratch."""
    D, F = x.shape[1], between.shape[1]
    for job in numba.prange(len(touched) * F):
        i, row = job // F, job % F
        e = touched[i]
        for v in range(starts[i], starts[i + 1]):
            gate, up = np.float32(0), np.float32(0)
            for d in range(D):
                gate += w_gate[e, row, d] * x[v, d]
                up += w_up[e, row, d] * x[v, d]
            between[v, row] = gate / (np.float32(1) + np.float32(math.exp(-gate))) * up
    for job in numba.prange(len(touched) * D):
        i, row = job // D, job % D
        e = touched[i]
        for v in range(starts[i], starts[i + 1]):
            total = np.float32(0)
            for f in range(F):
                total += w_down[e, row, f] * between[v, f]
            y[v, row] = total


def run_grouped(
    x: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    w_gate: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
) -> torch.Tensor:
    """The same as `mixture_of_experts.run_experts` with silu, without gradients: [tokens, D].

    All fp32 on the CPU, matrices contiguous. ValueError for anything else, and if shapes do not
    fit.
    """
    check_shapes(x, experts, weights, w_gate, w_up, w_down)
    tensors = {"x": x, "w_gate": w_gate, "w_up": w_up, "w_down": w_down}
    for name, t in tensors.items():
        if t.dtype != torch.float32 or t.device.type != "cpu" or not t.is_contiguous():
            raise ValueError(
                f"grouped experts need contiguous fp32 tensors on the CPU; {name} is {t.dtype} on"
                f" {t.device}{'' if t.is_contiguous() else ', not contiguous'}."
            )
    if torch.is_grad_enabled() and any(t.requires_grad for t in (*tensors.values(), weights)):
        raise ValueError("grouped experts compute no gradients: call them under inference_mode.")
    n, k = experts.shape
    order, counts = by_expert(experts, len(w_gate))  # [n·k], and visits per expert
    touched = np.flatnonzero(counts)
    starts = np.concatenate([[0], np.cumsum(counts)[touched]])  # the others have no visits
    whose = order.div(k, rounding_mode="floor")  # [n·k]: visit i is of token i // k
    rows = x.index_select(0, whose)  # [n·k, D]
    between = torch.empty(n * k, w_gate.shape[1], device="cpu")
    y = torch.empty_like(rows)
    gate, up, down = (t.detach().numpy() for t in (w_gate, w_up, w_down))
    _grouped_mlp(rows.detach().numpy(), touched, starts, gate, up, down, between.numpy(), y.numpy())
    back = torch.empty_like(y)
    back[order] = y  # [n·k, D]
    return (back.view(n, k, -1) * weights[..., None]).sum(dim=1).to(x.dtype)  # [n, D]
