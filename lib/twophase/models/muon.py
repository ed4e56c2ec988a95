"""Muon (Jordan et al., 2024) for many small matrices: those of one shape are stacked and take their
step in one batched product.

torch's Muon goes from matrix to matrix: fifteen small products each, and a model of four layers has
28 matrices. The mathematics, the settings and the state are torch's; only the loop is not.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Muon


class StackedMuon(Muon):
    """torch's Muon; `step` takes all matrices of one shape at once. A saved state is good for
    both."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of all matrices that have a gradient; returns what `closure` returns, if
        there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            moving = [p for p in group["params"] if p.grad is not None]
            updates = self._momentum(moving, group["momentum"], group["nesterov"])
            by_shape = defaultdict(list)
            for p, update in zip(moving, updates, strict=True):
                by_shape[tuple(sorted(p.shape))].append((p, update))
            for stack in by_shape.values():
                self._move(stack, group)
        return loss

    def _momentum(
        self, moving: list[torch.nn.Parameter], momentum: float, nesterov: bool
    ) -> list[torch.Tensor]:
        """The running mean of each one's gradients, [rows, columns]; Nesterov's looks a step
        ahead."""
        if not moving:
            return []
        grads = [p.grad for p in moving if p.grad is not None]
        for p, grad in zip(moving, grads, strict=True):
            if "momentum_buffer" not in self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(grad)
        buffers = [self.state[p]["momentum_buffer"] for p in moving]
        torch._foreach_lerp_(buffers, grads, 1 - momentum)
        return list(torch._foreach_lerp(grads, buffers, momentum)) if nesterov else buffers

    @staticmethod
    def _move(stack: list[tuple[torch.nn.Parameter, torch.Tensor]], group: dict[str, Any]) -> None:
        """The step of matrices that have the same two sides, either way round. ValueError unless it
        is to be as large as AdamW's."""
        if group["adjust_lr_fn"] != "match_rms_adamw":
            raise ValueError(
                "adjust_lr_fn of stacked matrices is match_rms_adamw; got"
                f" {group['adjust_lr_fn']!r}: take torch.optim.Muon."
            )
        wide = torch.stack([u if u.shape[0] <= u.shape[1] else u.mT for _, u in stack])
        moves = orthogonal(wide, group["ns_coefficients"], group["ns_steps"], group["eps"])
        # as large as AdamW's steps (Liu et al., 2025, arXiv 2502.16982, equation 4)
        lr = group["lr"] * 0.2 * wide.shape[2] ** 0.5
        moves = moves.float().mul_(lr)  # [n, rows, columns]; a rate on the device stays there
        matrices: list[torch.Tensor] = [p for p, _ in stack]
        torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
        turned = [m if m.shape == p.shape else m.mT for p, m in zip(matrices, moves, strict=True)]
        torch._foreach_sub_(matrices, turned)


def orthogonal(
    matrices: torch.Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> torch.Tensor:
    """Each of the matrices [n, rows, columns], rows ≤ columns, with all its singular values near 1:
    bf16 [n, rows, columns].

    A Newton–Schulz iteration: the polynomial a·s + b·s³ + c·s⁵, taken `steps` times, lifts every
    singular value s in (0, 1] to about 1 and leaves the singular vectors alone.
    """
    a, b, c = coefficients
    x = matrices.bfloat16()  # [n, rows, columns]
    x = x / torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).clamp(min=eps)  # s ≤ 1
    for _ in range(steps):
        gram = x @ x.mT  # [n, rows, rows]
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)  # [n, rows, rows]
        x = torch.baddbmm(x, polynomial, x, beta=a)  # [n, rows, columns]
    return x
