"""A transformer composed of the kernels, the checkpoints trained here, and how they were trained.

`models.load("gqa")` is where most readers start; `models.generate` runs it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twophase.models.checkpoints import available, card, load

__all__ = ["available", "card", "load"]


def __getattr__(name: str) -> Any:
    """Import torch only when a model is asked for: the corpus list and the command line need
    none."""
    if name in __all__:
        from twophase.models import checkpoints

        return getattr(checkpoints, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
