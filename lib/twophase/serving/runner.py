"""What an engine needs of whoever runs its passes: a model here, or only its prices."""

from collections.abc import Sequence
from typing import Protocol

import torch

from twophase.serving.request import Request


class Runner(Protocol):
    """What an engine needs of whoever runs its passes."""

    @property
    def V(self) -> int:
        """Tokens are below it."""

    @property
    def most_positions(self) -> int:
        """How long a sequence may be; 0: as long as there are blocks."""

    @property
    def has_states(self) -> bool:
        """Whether layers keep states."""

    def seat(self, seq: int) -> None:
        """A sequence begins to run."""

    def unseat(self, seq: int) -> None:
        """It does not run any more."""

    def copy_block(self, source: int, target: int) -> None:
        """Copy a block."""

    def copy_window_block(self, source: int, target: int) -> None:
        """Copy a block of the layers with a window, where these have their own."""

    def copy_state(self, source: int, target: int) -> None:
        """Copy the states of a sequence."""

    def save(
        self, seq: int, table: Sequence[int], window_table: Sequence[int] = ()
    ) -> list[torch.Tensor]:
        """What a sequence holds."""

    def restore(
        self,
        seq: int,
        table: Sequence[int],
        saved: Sequence[torch.Tensor],
        window_table: Sequence[int] = (),
    ) -> None:
        """Put it back."""

    def run(
        self,
        n_new: dict[Request, int],
        tables: dict[int, list[int]],
        window_tables: dict[int, list[int]] | None = None,
    ) -> dict[Request, torch.Tensor]:
        """Logits [V] of each request whose tokens are all read after this pass. `window_tables`: of
        the layers with a window, where these have their own."""
