"""What a layer keeps of the tokens so far: a few tensors with a row for each sequence.

A store knows numbers and nothing else. How many tokens each sequence holds is its owner's to say
(`models.cache`), with a `Span` for each pass. So a pass that is broken off changes nothing: what it
wrote lies behind the end, or was only proposed.
"""

from collections.abc import Sequence

import torch

from twophase.kernels.span import Span, whole


class Store:
    """The tensors `held`, [B, ...] each, at zero before the first token.

    What all stores do is here; `commit`, `move` and `take_back` do nothing where a kind has nothing
    to do. Raises ValueError for sizes that leave nothing to hold.
    """

    unlimited = False  # whether any number of tokens can be taken back: nothing is overwritten

    def __init__(
        self,
        B: int,
        *shapes: Sequence[int],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        shapes = tuple(map(tuple, shapes))
        sizes = (B, *(size for shape in shapes for size in shape))
        none = any(isinstance(n, bool) or not hasattr(n, "__index__") for n in sizes)
        if none or not all(map(len, shapes)) or min(B, *shapes[0]) < 1 or min(map(min, shapes)) < 0:
            raise ValueError(
                f"a {type(self).__name__} needs sizes of at least 1; got {B} rows of"
                f" {[list(shape) for shape in shapes]}."
            )
        self.held = tuple(torch.zeros(B, *shape, dtype=dtype, device=device) for shape in shapes)

    @property
    def nbytes(self) -> int:
        """Bytes taken, filled or not."""
        return sum(held.nbytes for held in self.held)

    def commit(self, span: Span, kept: Sequence[int]) -> None:
        """The first `kept[b]` tokens of the span that was written last stay, and no others."""

    def move(self, span: Span, paths: Sequence[Sequence[int]]) -> None:
        """Put the tokens `paths[b]` of a tree one after the other, so that they can stay."""

    def take_back(self, gone: Span) -> None:
        """Forget these tokens, the last of their sequences."""

    def clear(self, row: int) -> None:
        """Forget one sequence. What is not seen is weighted with 0, and 0·NaN is NaN: one that went
        wrong must leave nothing to the next in its row. ValueError for a row that there is not."""
        self._check_row(row)
        for held in self.held:
            held[row] = 0

    def copy_row(self, source: int, target: int) -> None:
        """Make one sequence a copy of another. ValueError for a row that there is not."""
        self._check_row(source)
        self._check_row(target)
        for held in self.held:
            held[target] = held[source]

    def _check_row(self, row: int) -> None:
        if whole("the number of a row", row, 0) >= len(self.held[0]):
            raise ValueError(f"there are {len(self.held[0])} rows, counted from 0; got {row}.")

    def fill_with_noise(self) -> None:
        """Normal numbers everywhere: for measuring, where the numbers do not matter."""
        for held in self.held:
            held.normal_()
