"""Heads that guess several tokens at once from one place of the target's stream (Medusa; Cai et al.
2024, arXiv 2401.10774).

Head i is one residual layer and an output matrix of its own, as in the paper. The target's own head
says the token that follows the place; head i guesses the one i places further, without having seen
those between. So drafting is one small product for all of them, and the later guesses are poor: a
tree of the likeliest few at each place makes up for some of that. What is kept is decided by the
exact rule here, not by the paper's typical acceptance, which changes the law.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional

from twophase.kernels.sampling import Choose
from twophase.kernels.span import whole
from twophase.models.linear import Linear
from twophase.models.speculative_decoding.drafts import Draft, Text, check_vocabulary
from twophase.models.speculative_decoding.law import Law
from twophase.models.speculative_decoding.trees import grow, tree_size


class MedusaHeads(nn.Module):
    """n guesses from one place: the stream [..., D] → logits [..., n, V]."""

    def __init__(self, n: int, D: int, V: int) -> None:
        super().__init__()
        self.n, self.D, self.V = n, D, V
        self.layers = nn.ModuleList(Linear(D, D) for _ in range(n))
        self.out = nn.ModuleList(Linear(D, V) for _ in range(n))
        for layer in self.layers:
            nn.init.zeros_(layer.get_parameter("weight"))  # it begins as the target's own head

    def begin_as(self, lm_head: nn.Module) -> None:
        """Take the target's output matrix as each head's first one."""
        for out in self.out:
            out.get_parameter("weight").data.copy_(lm_head.get_parameter("weight"))

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        """stream: [..., D] → logits [..., n, V]."""
        guesses = [
            out(stream + functional.silu(layer(stream)))  # [..., V]
            for layer, out in zip(self.layers, self.out, strict=True)
        ]
        return torch.stack(guesses, -2)


class MedusaDrafter:
    """Medusa heads draft a tree: `widths[i]` candidates of head i behind each of the head before,
    drawn without putting back; a chain if all are 1."""

    def __init__(
        self, heads: MedusaHeads, widths: Sequence[int] | None = None, name: str = "heads"
    ) -> None:
        widths = [1] * heads.n if widths is None else widths
        if not 1 <= len(widths) <= heads.n:
            raise ValueError(f"{heads.n} heads draft 1 to {heads.n} levels; got {len(widths)}.")
        self.widths = [whole("the width of a tree", width, 1) for width in widths]
        self.heads, self.name = heads, name

    def begin(self, V: int, B: int, S_max: int, gamma: int) -> int:
        """As `Drafter` says."""
        check_vocabulary(V, self.heads.V)
        self.last: list[torch.Tensor | None] = [None] * B
        return tree_size(self.widths[:gamma])

    def see(self, features: Sequence[torch.Tensor | None]) -> None:
        """As `FeatureReader` says: the last place of each text."""
        for b, stream in enumerate(features):
            if stream is not None:
                self.last[b] = stream[-1]  # [D]

    def propose(
        self, texts: Sequence[Text], counts: Sequence[int], law: Law, dice: Callable[[int], Choose]
    ) -> list[Draft]:
        """As `Drafter` says: one pass of all heads for all texts."""
        drafts = [Draft() for _ in texts]
        asked = [b for b, text in enumerate(texts) if text is not None and counts[b] > 0]
        if not asked:
            return drafts
        places = [stream for b in asked if (stream := self.last[b]) is not None]
        guesses = self.heads(torch.stack(places))  # [len(asked), n, V]
        for b, own in zip(asked, guesses, strict=True):
            drafts[b] = self._grow(own, self.widths[: counts[b]], law, dice(b))
        return drafts

    def _grow(self, guesses: torch.Tensor, widths: Sequence[int], law: Law, draw: Choose) -> Draft:
        """A tree from guesses [n, V]: what a head says is the same behind every token."""
        rows = iter(guesses)
        return grow(
            widths, lambda level, tokens, parents: next(rows).expand(len(level), -1), law, draw
        )
