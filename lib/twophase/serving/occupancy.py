"""What fills a pool: sequences served by a policy of room, and every place counted at every step.

A step gives each sequence that runs one token. Who comes first is admitted first, as soon as there
is room; where sequences grow, the last one admitted gives way when there is none. No model runs
here, and no clock: only places are counted (Kwon et al., 2023, section 3.1, whose words these are).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from twophase.kernels.span import whole
from twophase.serving.allocation import FirstFit
from twophase.serving.block_manager import BlockManager, NoFreeBlocks


@dataclass(frozen=True)
class Job:
    """A prompt, the answer that will come of it, and the most tokens that its sender allows."""

    n_prompt: int
    n_output: int
    most_output: int

    def __post_init__(self) -> None:
        whole("n_prompt", self.n_prompt, 1)
        whole("n_output", self.n_output, 1)
        whole("most_output", self.most_output, self.n_output)

    @property
    def longest(self) -> int:
        """Places that it will have used at its end: the last token is never read."""
        return self.n_prompt + self.n_output - 1


class Room(Protocol):
    """A policy: what a sequence takes when it begins, and as it grows."""

    def needs(self, job: Job, length: int) -> int:
        """Places that a job takes that begins with so many tokens."""

    def begin(self, seq: int, job: Job, length: int) -> bool:
        """Take them, if they are there; whether they were."""

    def grow(self, seq: int, length: int) -> bool:
        """Make room for `length` tokens; whether there was any."""

    def end(self, seq: int) -> None:
        """Give all of it back."""

    def held(self, seq: int) -> int:
        """Places that a sequence has."""

    @property
    def n_free(self) -> int:
        """Places that nobody has."""


class OnePiece:
    """All that a job may need, side by side, when it begins: `asks(job)` places of `pieces`.
    ValueError for a job that needs more than was asked.

    `compacting`: where there are places enough and no gap, all pieces are moved together first;
    `moved` counts the places, `compactions` how often.
    """

    def __init__(
        self, pieces: FirstFit, asks: Callable[[Job], int], *, compacting: bool = False
    ) -> None:
        self.pieces, self.asks, self.compacting = pieces, asks, compacting
        self.moved = self.compactions = 0

    def needs(self, job: Job, length: int) -> int:
        """What `asks` says, as the pieces have it."""
        return self.pieces.takes(self.asks(job))

    def begin(self, seq: int, job: Job, length: int) -> bool:
        """One piece, if there is a gap for it, or can be made."""
        n = self.asks(job)
        if n < job.longest:
            raise ValueError(f"a job of {job.longest} places asks for {n}, and could never end.")
        if self.pieces.allocate(seq, n):
            return True
        if self.compacting and n <= self.pieces.n_free:
            self.moved += self.pieces.compact()
            self.compactions += 1
            return self.pieces.allocate(seq, n)
        return False

    def grow(self, seq: int, length: int) -> bool:
        """There is room: it was taken at the beginning."""
        return length <= self.held(seq)

    def end(self, seq: int) -> None:
        """The piece is free."""
        self.pieces.free(seq)

    def held(self, seq: int) -> int:
        """The length of the piece."""
        return self.pieces.pieces[seq][1]

    @property
    def n_free(self) -> int:
        """All gaps together."""
        return self.pieces.n_free


class Pages:
    """Blocks for the tokens there are, and one more whenever the last is full.

    `watermark`: blocks that stay free when a sequence begins, for those that grow (unless it is the
    only one). ValueError for places that are no whole number of blocks.
    """

    def __init__(self, n_places: int, block_size: int, watermark: int = 0) -> None:
        if n_places % whole("the block size", block_size, 1):
            raise ValueError(f"{n_places} places are no whole number of blocks of {block_size}.")
        self.blocks = BlockManager(n_places // block_size, block_size)
        self.watermark = whole("the watermark", watermark, 0)

    def needs(self, job: Job, length: int) -> int:
        """Whole blocks, those that stay free included."""
        kept = self.watermark if self.blocks.tables else 0
        return (self.blocks.blocks_for(length) + kept) * self.blocks.block_size

    def begin(self, seq: int, job: Job, length: int) -> bool:
        """Blocks for the tokens there are, if enough stay free."""
        kept = self.watermark if self.blocks.tables else 0
        fits = self.blocks.can_allocate(self.blocks.blocks_for(length) + kept)
        if fits:
            self.blocks.allocate(seq, length)
        return fits

    def grow(self, seq: int, length: int) -> bool:
        """A block more, if it takes one."""
        try:
            self.blocks.append(seq, length - 1, 1)
        except NoFreeBlocks:
            return False
        return True

    def end(self, seq: int) -> None:
        """Its blocks are free."""
        self.blocks.free(seq)

    def held(self, seq: int) -> int:
        """Places of its blocks."""
        return len(self.blocks.tables[seq]) * self.blocks.block_size

    @property
    def n_free(self) -> int:
        """Places of the free blocks."""
        return self.blocks.n_free * self.blocks.block_size


@dataclass
class Occupancy:
    """Places over all counted steps, by what fills them.

    `used` hold a token; `reserved` will hold one of the same sequence; `internal` belong to a
    sequence and will never hold any; `external` are free, and enough for who comes next, but not
    side by side; `left` are free, and too few. Counted while somebody waits: the others are idle
    because nobody asks.
    """

    n_places: int
    steps: int = 0
    running: int = 0  # sequences, over all steps
    used: int = 0
    reserved: int = 0
    internal: int = 0
    external: int = 0
    left: int = 0
    all_steps: int = 0
    preemptions: int = 0
    read_again: int = 0  # tokens that preempted sequences had in their places

    @property
    def mean_running(self) -> float:
        """Sequences that run at a step; NaN where nobody ever waited."""
        if not self.steps:
            return float("nan")
        return self.running / self.steps

    def share(self, kind: str) -> float:
        """The share of all places that is of a kind; NaN where nobody ever waited."""
        if not self.steps:
            return float("nan")
        count: int = getattr(self, kind)
        return count / (self.steps * self.n_places)


def occupy(jobs: Sequence[Job], room: Room, n_places: int) -> Occupancy:
    """Serve all jobs, first come, first served, and count. ValueError for a job that does not fit
    into an empty pool, and for a pool that has no whole number of places."""
    n_places = whole("the number of places", n_places, 1)
    made = Occupancy(n_places)
    waiting = [(seq, job.n_prompt) for seq, job in enumerate(jobs)]  # who, with how many tokens
    length: dict[int, int] = {}  # of those that run, in the order in which they were admitted
    while waiting or length:
        while waiting and room.begin(waiting[0][0], jobs[waiting[0][0]], waiting[0][1]):
            seq, n = waiting.pop(0)
            length[seq] = n
        if waiting:
            _count(made, jobs, room, length, waiting[0])
        if not length:
            raise ValueError(f"job {waiting[0][0]} does not fit into a pool of {n_places} places.")
        made.all_steps += 1
        for seq in [seq for seq, n in length.items() if n == jobs[seq].longest]:
            room.end(seq)
            del length[seq]
        for seq in list(length):
            if seq in length:  # else it gave way in this step
                _grow(made, room, length, waiting, seq)
    return made


def _grow(
    made: Occupancy, room: Room, length: dict[int, int], waiting: list[tuple[int, int]], seq: int
) -> None:
    """Make room for one token more; the last admitted ones give way, perhaps this one itself, and
    come back with the token that they could not place."""
    while not room.grow(seq, length[seq] + 1):
        victim = next(reversed(length))
        room.end(victim)
        made.preemptions += 1
        made.read_again += length[victim]
        waiting.insert(0, (victim, length.pop(victim) + 1))
        if victim == seq:
            return
    length[seq] += 1


def _count(
    made: Occupancy,
    jobs: Sequence[Job],
    room: Room,
    length: dict[int, int],
    next_one: tuple[int, int],
) -> None:
    made.steps += 1
    made.running += len(length)
    for seq, n in length.items():
        held, longest = room.held(seq), jobs[seq].longest
        made.used += n
        made.reserved += min(held, longest) - n
        made.internal += max(0, held - longest)
    fits = room.needs(jobs[next_one[0]], next_one[1]) <= room.n_free
    if fits:
        made.external += room.n_free
    else:
        made.left += room.n_free
