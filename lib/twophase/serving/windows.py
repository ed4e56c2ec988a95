"""Which layers of a model keep tokens, and how far back somebody sees them."""

from twophase.models.config import Config
from twophase.models.stores import state_shapes


def windows_kept(model: Config) -> dict[int, int | None]:
    """The layers that keep tokens, and how many of them a query sees (None: all). A layer that
    reads another's is of its kind, and sees as far."""
    return {
        layer: model.at(layer).window if kind == "sliding" else None
        for layer, kind in enumerate(model.mixers)
        if model.source(layer) == layer and not state_shapes(model.at(layer), kind)
    }
