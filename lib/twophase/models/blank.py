"""A model with shapes and no numbers, whose weights come from elsewhere."""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from twophase.models.config import Config
from twophase.models.transformer import Transformer


class WithoutInitialization(TorchFunctionMode):
    """What is made in here keeps whatever is in its memory: drawing weights that are replaced would
    be for nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def blank(config: Config) -> Transformer:
    """A Transformer whose parameters have shapes and no memory."""
    with torch.device("meta"), WithoutInitialization():
        return Transformer(config).eval().requires_grad_(False)
