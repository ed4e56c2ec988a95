"""Heads that draft: one layer on top of the model's own stream (chapter 14).

For each drafted token the stream at a place is joined with the token that came there (2 D to D),
goes through one layer with a cache of its own, and through the model's output matrix. EAGLE's layer
has a plain MLP; that of multi-token prediction (DeepSeek-V3's MTP module) is one of the model's
own, experts and all. Embedding and output matrix are the model's: read again for each token, but
stored once.
"""

from dataclasses import dataclass, fields, replace

from twophase.theory.architecture import Architecture
from twophase.theory.layout import some_layers

HEADS = ("eagle", "mtp")


@dataclass(frozen=True)
class DraftHead(Architecture):
    """A model of one layer whose embedding and head are those of the model that it drafts for."""

    @property
    def n_borrowed(self) -> int:
        """Parameters that are stored for the other model anyway."""
        parts = self.breakdown()
        return parts["embedding"] + parts["positions"] + parts["head"]


def draft_head(arch: Architecture, kind: str) -> DraftHead:
    """The head of this kind for a model: its last layer with attention, behind a projection and two
    norms. ValueError for another kind, and where that layer reads the keys of an earlier one."""
    if kind not in HEADS:
        raise ValueError(f"A head that drafts is one of {', '.join(HEADS)}; got {kind!r}.")
    attends = [i for i, one in enumerate(arch.layer_kinds) if one not in ("state", "none")]
    if not attends:
        raise ValueError(f"{arch.name} has no layer with attention, such as a draft's head has.")
    own = replace(arch, other_params=0, other_matmul_params=0)
    layer = some_layers(own, attends[-1], attends[-1] + 1)
    joined = 2 * arch.D * arch.D
    layer = replace(
        layer,
        name=f"{arch.name}'s {kind} head",
        other_params=joined + 2 * arch.D,
        other_matmul_params=joined,
    )
    if kind == "eagle":
        layer = replace(layer, moe=None, mlps=None)
    elif layer.moe is not None and layer.mlps is not None:
        layer = replace(layer, mlps=("experts",))
    return DraftHead(**{field.name: getattr(layer, field.name) for field in fields(layer)})
