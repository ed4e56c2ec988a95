"""What a student is told by its teacher: whole distributions, and what happens on the way."""

from collections.abc import Sequence

import torch
from torch.nn import functional


def logits_loss(
    student: torch.Tensor,
    teacher: torch.Tensor,
    temperature: float = 1.0,
    reverse: bool = False,
) -> torch.Tensor:
    """Mean over tokens of KL(teacher ‖ student), in nats, of logits [..., V], both divided by the
    temperature; times its square, so that gradients do not shrink with it (Hinton et al. 2015,
    arXiv 1503.02531, section 2).

    `reverse`: KL(student ‖ teacher), which a student lowers by leaving out what it cannot do.
    No gradient goes to the teacher. ValueError for other shapes, or a temperature not above 0.
    """
    if student.shape != teacher.shape:
        raise ValueError(
            f"student and teacher speak of the same tokens and vocabulary; got"
            f" {list(student.shape)} and {list(teacher.shape)}."
        )
    if not 0 < temperature < float("inf"):
        raise ValueError(f"a temperature is a number above 0; got {temperature}.")
    own = functional.log_softmax(student.float() / temperature, dim=-1)
    taught = functional.log_softmax(teacher.detach().float() / temperature, dim=-1)
    if reverse:
        own, taught = taught, own
    kl = (taught.exp() * (taught - own)).sum(-1)  # [...]
    return kl.mean() * temperature**2


def hidden_loss(student: Sequence[torch.Tensor], teacher: Sequence[torch.Tensor]) -> torch.Tensor:
    """How far a student's streams are from its teacher's, pair by pair, [B, T, D] each: the mean
    squared difference over the mean square of the teacher's. 0 where equal, 1 for a student that
    says 0. ValueError for other shapes, or no pair at all."""
    if len(student) != len(teacher) or not student:
        raise ValueError(
            f"streams come in pairs, one at least; got {len(student)} of the student and"
            f" {len(teacher)} of the teacher."
        )
    found = []
    for own, taught in zip(student, teacher, strict=True):
        if own.shape != taught.shape:
            raise ValueError(
                "a student's stream is as wide as its teacher's, or it cannot be compared number by"
                f" number; got {list(own.shape)} and {list(taught.shape)}."
            )
        goal = taught.detach().float()
        found.append((own.float() - goal).square().mean() / goal.square().mean())
    return torch.stack(found).mean()
