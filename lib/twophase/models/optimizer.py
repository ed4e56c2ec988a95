"""The optimizer of the family: Muon for the matrices of the layers, AdamW for all else.

Muon (Jordan et al., 2024; Liu et al., 2025, arXiv 2502.16982) takes the momentum of a matrix and
replaces its singular values by one, so that rare directions are learned as fast as common ones.
After 1.5 MB of this corpus in batches of eight sequences, one grouped-query model of 771,200
parameters stood at 2.00 bits per held-out byte with it (peak 6e-3) and at 2.25 with AdamW alone
(peak 3e-3); one seed each, no other rates of AdamW tried.
"""

from typing import Any

import torch
from torch import nn
from torch.optim import AdamW

from twophase.models.muon import StackedMuon


class MuonAdamW:
    """Muon and AdamW behind one `step`; learning rates are set as a share of each one's peak.

    Stacked matrices (experts, [E, F, D]) are E matrices to Muon: it is given slices that share the
    memory of the stack.
    """

    def __init__(
        self, model: nn.Module, lr_matrices: float, lr_others: float, weight_decay: float
    ) -> None:
        matrices, self.stacks, others = [], [], []
        for name, p in model.named_parameters():
            inside = name.startswith("layers.") and not getattr(p, "_no_weight_decay", False)
            if inside and p.ndim == 2:
                matrices.append(p)
            elif inside and p.ndim == 3 and "experts" in name:
                self.stacks.append((p, [nn.Parameter(p.data[e]) for e in range(len(p))]))
            else:
                others.append(p)
        slices = [s for _, stack in self.stacks for s in stack]
        self.parts: list[tuple[torch.optim.Optimizer, float]] = []
        if matrices + slices:
            muon = StackedMuon(
                matrices + slices, lr_matrices, weight_decay, adjust_lr_fn="match_rms_adamw"
            )
            self.parts.append((muon, lr_matrices))
        if others:
            adam = AdamW(
                others,
                lr_others,
                (0.9, 0.95),
                weight_decay=0.0,
                fused=True,
                capturable=others[0].is_cuda,
            )
            self.parts.append((adam, lr_others))

    def zero_grad(self, model: nn.Module) -> None:
        """Forget the gradients."""
        model.zero_grad(set_to_none=True)

    def step(self, share: float | torch.Tensor) -> None:
        """One step at `share` of the peak learning rates; a tensor [] on a GPU is read there."""
        for p, slices in self.stacks:
            for e, s in enumerate(slices):
                s.grad = None if p.grad is None else p.grad[e]
        for optimizer, peak in self.parts:
            for group in optimizer.param_groups:
                group["lr"] = peak * share
            optimizer.step()

    def state_dict(self) -> list[dict[str, Any]]:
        """The state of both, for a run that goes on later."""
        return [optimizer.state_dict() for optimizer, _ in self.parts]

    def load_state_dict(self, states: list[dict[str, Any]]) -> None:
        """Take up such a state, of a run on whatever device: whether a step can be captured is for
        the device of this one to say."""
        for (optimizer, _), state in zip(self.parts, states, strict=True):
            own = [group.get("capturable") for group in optimizer.param_groups]
            optimizer.load_state_dict(state)
            for group, capturable in zip(optimizer.param_groups, own, strict=True):
                if capturable is not None:  # None: Muon's steps always can
                    group["capturable"] = capturable
