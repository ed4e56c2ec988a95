"""A student learns from text, or from what its teacher makes of it: the teacher's logits, and the
streams after its layers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch.nn import functional

from twophase.kernels.pruning import hidden_loss, logits_loss
from twophase.models.bf16_products import products_in_fp32
from twophase.models.optimizer import MuonAdamW
from twophase.models.recipe import Recipe, batch
from twophase.models.transformer import Transformer

TEXT, LOGITS, BOTH = "text", "logits", "logits and streams"
POINTS = 4  # of a curve, after the one at the start


@contextmanager
def streams(model: Transformer, layers: list[int]) -> Iterator[list[torch.Tensor]]:
    """The stream after each of these layers, [B, T, D], of the pass that runs in the block."""
    caught: list[torch.Tensor] = []
    hooks = [
        model.layers[layer].register_forward_hook(lambda module, args, out: caught.append(out))
        for layer in layers
    ]
    try:
        yield caught
    finally:
        for hook in hooks:
            hook.remove()


def lesson(
    student: Transformer, teacher: Transformer, kept: list[int], tokens: torch.Tensor, way: str
) -> torch.Tensor:
    """The loss of a batch, int64 [B, T + 1]: of the text itself, of the teacher's logits at each
    byte, or of these and the streams after the layers that stayed."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    own_layers = list(range(len(kept))) if way == BOTH else []
    with streams(student, own_layers) as own:
        logits = student(inputs)  # [B, T, V]
    if way == TEXT:
        return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
    with torch.no_grad(), streams(teacher, kept if way == BOTH else []) as taught:
        told = teacher(inputs)  # [B, T, V]
    loss = logits_loss(logits, told)
    return loss + hidden_loss(own, taught) if way == BOTH else loss


@products_in_fp32()
def teach(
    student: Transformer,
    teacher: Transformer,
    kept: list[int],
    way: str,
    recipe: Recipe,
    data: np.ndarray,
    measure: Callable[[Transformer], float] | None = None,
    T: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[tuple[int, float]]:
    """Train the student in place on windows of T tokens, its context if not said; (tokens, what
    `measure` finds) at the start and at POINTS places, the last at the end; nothing without
    `measure`. `progress` is told steps done and steps in all. ValueError for a text that fills no
    batch."""
    student.requires_grad_(True).train()
    T = student.config.context if T is None else T
    steps = recipe.steps(T)
    optimizer = MuonAdamW(student, recipe.lr_matrices, recipe.lr_others, recipe.weight_decay)
    stops = {round(i * steps / POINTS) for i in range(1, POINTS + 1)}
    curve = [(0, measure(student))] if measure else []
    for step in range(steps):
        tokens = batch(data, step, recipe.B, T, recipe.seed)
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.autocast):
            loss = lesson(student, teacher, kept, tokens, way)
        optimizer.zero_grad(student)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(student.parameters(), recipe.clip)
        optimizer.step(recipe.lr_share(step, T))
        if measure and step + 1 in stops:
            curve.append(((step + 1) * recipe.B * T, measure(student)))
        if progress:
            progress(step + 1, steps)
    return curve
