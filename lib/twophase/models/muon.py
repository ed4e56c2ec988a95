"""Muon (Jordan et al., 2024) for many small matrices: they are stacked and take their step in one
batched product.

torch's Muon goes from matrix to matrix: fifteen small products each, and a model of four layers has
28 matrices. The mathematics, the settings and the state are torch's; only the loop is not.

A CPU stacks matrices of one shape. On a card a product of so small matrices takes as long as its
launch, whatever their shapes: there all are padded with zeros to the largest and stacked together.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.optim import Muon


@dataclass(frozen=True)
class PaddedStack:
    """Matrices of several shapes as one stack [n, rows, columns], rows ≤ columns, each on its wide
    side and padded with zeros: those add no singular value, and an odd polynomial keeps them zeros.

    Where each number goes is one index, so that stacking and taking apart are a kernel each.
    """

    shapes: tuple[tuple[int, int], ...]
    device: torch.device

    @property
    def size(self) -> tuple[int, int, int]:
        """n, rows, columns."""
        rows, columns = (max(side(shape) for shape in self.shapes) for side in (min, max))
        return len(self.shapes), rows, columns

    @cached_property
    def places(self) -> torch.Tensor:
        """Where each number of the matrices, one after the other, stands in the flat stack: int64
        [total]."""
        _, rows, columns = self.size
        of_each = []
        for i, (r, c) in enumerate(self.shapes):
            down = torch.arange(r)[:, None].expand(r, c)  # [r, c]
            across = torch.arange(c).expand(r, c)  # [r, c]
            row, column = (down, across) if r <= c else (across, down)
            of_each.append(((i * rows + row) * columns + column).flatten())  # [r · c]
        return torch.cat(of_each).to(self.device)

    @cached_property
    def largest(self) -> torch.Tensor:
        """The longer side of each matrix: fp32 [n, 1, 1]."""
        sides = [float(max(shape)) for shape in self.shapes]
        return torch.tensor(sides, device=self.device)[:, None, None]

    def stacked(self, matrices: Sequence[torch.Tensor]) -> torch.Tensor:
        """The stack [n, rows, columns] of matrices of these shapes, in bf16."""
        flat = torch.cat([m.flatten() for m in matrices]).bfloat16()  # [total]
        stack = flat.new_zeros(math.prod(self.size))
        stack[self.places] = flat
        return stack.view(self.size)  # [n, rows, columns]

    def apart(self, stack: torch.Tensor) -> list[torch.Tensor]:
        """The matrices of a stack [n, rows, columns], in their shapes and without its padding."""
        flat = torch.split(stack.flatten()[self.places], [r * c for r, c in self.shapes])
        return [part.view(shape) for part, shape in zip(flat, self.shapes, strict=True)]


class StackedMuon(Muon):
    """torch's Muon; `step` takes all matrices of one shape at once, or all of them `together`
    (None: on a card only). A saved state is good for all three."""

    together: bool | None = None
    _stack: PaddedStack | None = None

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
            on_card = bool(moving) and moving[0].is_cuda
            if moving and (on_card if self.together is None else self.together):
                self._move_together(moving, updates, group)
                continue
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

    def _move_together(
        self, moving: list[torch.nn.Parameter], updates: list[torch.Tensor], group: dict[str, Any]
    ) -> None:
        """The step of matrices of any shapes, in one stack."""
        _check_size_of_steps(group)
        shapes = tuple((int(p.shape[0]), int(p.shape[1])) for p in moving)
        device = moving[0].device
        if self._stack is None or (self._stack.shapes, self._stack.device) != (shapes, device):
            self._stack = PaddedStack(shapes, device)
        stack = self._stack
        moves = orthogonal(
            stack.stacked(updates), group["ns_coefficients"], group["ns_steps"], group["eps"]
        )
        sized = moves.float() * (group["lr"] * 0.2 * stack.largest.sqrt())  # [n, rows, columns]
        matrices: list[torch.Tensor] = list(moving)
        torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_sub_(matrices, stack.apart(sized))

    @staticmethod
    def _move(stack: list[tuple[torch.nn.Parameter, torch.Tensor]], group: dict[str, Any]) -> None:
        """The step of matrices that have the same two sides, either way round."""
        _check_size_of_steps(group)
        wide = torch.stack([u if u.shape[0] <= u.shape[1] else u.mT for _, u in stack])
        moves = orthogonal(wide, group["ns_coefficients"], group["ns_steps"], group["eps"])
        # as large as AdamW's steps (Liu et al., 2025, arXiv 2502.16982, equation 4)
        lr = group["lr"] * 0.2 * wide.shape[2] ** 0.5
        moves = moves.float().mul_(lr)  # [n, rows, columns]; a rate on the device stays there
        matrices: list[torch.Tensor] = [p for p, _ in stack]
        torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
        turned = [m if m.shape == p.shape else m.mT for p, m in zip(matrices, moves, strict=True)]
        torch._foreach_sub_(matrices, turned)


def _check_size_of_steps(group: dict[str, Any]) -> None:
    """ValueError unless steps are to be as large as AdamW's."""
    if group["adjust_lr_fn"] != "match_rms_adamw":
        raise ValueError(
            "adjust_lr_fn of stacked matrices is match_rms_adamw; got"
            f" {group['adjust_lr_fn']!r}: take torch.optim.Muon."
        )


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
