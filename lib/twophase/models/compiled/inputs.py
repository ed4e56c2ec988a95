"""What the compiled path takes: which models, and which tokens' numbers."""

import torch
from torch import nn

from twophase.kernels.compiled.loops import STORED
from twophase.models.compiled.weights import hooks_of
from twophase.models.step import check_at
from twophase.models.transformer import Transformer


def check_model(model: nn.Module) -> None:
    """ValueError, in one sentence, unless compiled loops can run the model."""
    if type(model) is not Transformer:
        raise ValueError(
            f"the compiled path runs a Transformer as it was built; got a {type(model).__name__}:"
            " take the plain path."
        )
    if any(module == 0 for module, _ in hooks_of(model)):
        raise ValueError(
            "hooks are called around every module (register_module_forward_hook), which compiled"
            " steps do not call: remove them, or take the plain path."
        )
    if model._forward_hooks or model._forward_pre_hooks or "forward" in vars(model):
        raise ValueError(
            "the whole model has hooks or another forward put in, which compiled steps do not call:"
            " take the plain path, or hook its layers."
        )
    if not model.config.causal:
        raise ValueError("a model that reads both ways has no decode step to compile.")
    if model.device.type != "cpu":
        raise ValueError(
            f"the compiled path runs on the CPU, and this model is on {model.device}: take the"
            " plain path, or move the model."
        )
    dtype = model.embed_tokens.weight.dtype
    if dtype not in STORED:
        raise ValueError(
            f"compiled loops read float32 and bfloat16, and these weights are {dtype}: take the"
            " plain path, or convert the model."
        )


def number_of(at: torch.Tensor | int, B: int, T: int) -> int:
    """`at` as a number from 0 to T - 1: of the tokens of one sequence, or of the only one of each.
    ValueError as `check_at`, wherever `at` is."""
    at = at.cpu() if isinstance(at, torch.Tensor) else at
    check_at(at, B, T)
    return (at if isinstance(at, int) else int(at.flatten()[0])) % T
