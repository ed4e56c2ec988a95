"""From importances to what stays."""

import torch

from twophase.kernels.span import whole
from twophase.models.pruning.cut import Kept
from twophase.models.pruning.importance import shape_of_scores
from twophase.models.transformer import Transformer


def keep_best(model: Transformer, scores: torch.Tensor, unit: str, n: int) -> Kept:
    """Keep the n most important layers, numbers of the stream, or, of every layer, channels or
    query heads; of equals the first.

    Heads go by groups, so that each KV head that stays keeps all that read it: n counts KV heads,
    and a group weighs what its query heads weigh together. Raises ValueError if there are not n,
    for another unit, and for scores of another model's.
    """
    c = model.config
    shape = shape_of_scores(model, unit)
    if not isinstance(scores, torch.Tensor) or tuple(scores.shape) != shape:
        got = list(getattr(scores, "shape", [type(scores).__name__]))
        raise ValueError(f"the {unit} of this model have scores {list(shape)}; got {got}.")
    if unit in ("layers", "width"):
        numbers = _best(scores, n, unit)
        return Kept(layers=numbers) if unit == "layers" else Kept(width=numbers)
    chosen = {}
    for layer in range(c.L):
        own = c.at(layer)
        if unit == "channels":
            chosen[layer] = _best(scores[layer, : own.F], n, f"channels of layer {layer}")
            continue
        groups = scores[layer, : own.N].view(own.K, own.G).sum(-1)  # [K]
        best = _best(groups, n, f"KV heads of layer {layer}")
        chosen[layer] = [k * own.G + g for k in best for g in range(own.G)]
    return Kept(heads=chosen) if unit == "heads" else Kept(channels=chosen)


def _best(scores: torch.Tensor, n: int, what: str) -> list[int]:
    """The numbers of the n largest, in their order."""
    if whole(f"how many {what} stay", n, 1) > len(scores):
        raise ValueError(f"there are {len(scores)} {what}; {n} of them cannot stay.")
    order = scores.sort(descending=True, stable=True).indices
    return sorted(order[:n].tolist())
