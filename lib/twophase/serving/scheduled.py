"""What a scheduler decides: who reads how many tokens in the next pass, and what happens to blocks
before it."""

from dataclasses import dataclass, field
from typing import NamedTuple

from twophase.serving.request import Request


class CopyBlock(NamedTuple):
    """What lies in a block goes to another, too: somebody will write there (copy-on-write)."""

    source: int
    target: int
    windowed: bool = False  # of the layers with a window


class SwapOut(NamedTuple):
    """What a sequence holds is put aside; its blocks are others' from now on."""

    request: Request
    table: tuple[int, ...]
    window_table: tuple[int, ...] = ()


class SwapIn(NamedTuple):
    """What was put aside comes back, to blocks of its own."""

    request: Request
    table: tuple[int, ...]
    window_table: tuple[int, ...] = ()


@dataclass
class Scheduled:
    """The next pass: each request that takes part, and how many of its missing tokens are read.

    `moves` come first, in their order: a block may be put aside, taken, and copied to, in one pass.
    """

    n_new: dict[Request, int] = field(default_factory=dict)
    moves: list[CopyBlock | SwapOut | SwapIn] = field(default_factory=list)
    admitted: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)

    @property
    def n_tokens(self) -> int:
        """Tokens that the pass reads."""
        return sum(self.n_new.values())
