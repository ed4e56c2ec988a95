"""What the texts say of caches in pieces and in blocks, counted on pools of the package."""

import random
from functools import cache

from twophase.serving.allocation import FirstFit
from twophase.serving.block_manager import BlockManager
from twophase.serving.occupancy import Job, Occupancy, OnePiece, Pages, Room, occupy
from twophase.theory.paging import least_blocks

N_PLACES, LONGEST = 8192, 2048


@cache
def _occupied(way: str) -> Occupancy:
    """120 requests of some hundred tokens in a pool, each with a piece for the longest, a piece for
    what it will need, or in pages of 16."""
    rng = random.Random(0)
    jobs = [Job(rng.randrange(20, 600), n := rng.randrange(20, 400), n) for _ in range(120)]
    rooms: dict[str, Room] = {
        "longest": OnePiece(FirstFit(N_PLACES), lambda job: LONGEST),
        "exact": OnePiece(FirstFit(N_PLACES), lambda job: job.longest),
        "pages": Pages(N_PLACES, 16),
    }
    return occupy(jobs, rooms[way], N_PLACES)


def pool_share(way: str, kind: str) -> float:
    """The share of a pool that is used, reserved, internal or external waste, over all steps."""
    return _occupied(way).share(kind)


def copies_at_parting(n_tokens: int, sequences: int, block_size: int) -> int:
    """Blocks copied when sequences that are forks of one of n tokens write a token each."""
    blocks = BlockManager(1000, block_size)
    blocks.allocate(0, n_tokens)
    for child in range(1, sequences):
        blocks.fork(0, child)
    return sum(len(blocks.append(seq, n_tokens, 1)) for seq in range(sequences))


def count_after_parting(n_tokens: int, sequences: int, block_size: int) -> int:
    """How many still share the last block, when one of them has written."""
    blocks = BlockManager(1000, block_size)
    blocks.allocate(0, n_tokens)
    for child in range(1, sequences):
        blocks.fork(0, child)
    last = blocks.tables[0][-1]
    blocks.append(0, n_tokens, 1)
    return blocks.ref_count[last]


def copies_for_a_prefix(n_alike: int, block_size: int) -> int:
    """Blocks copied when a second prompt that begins like a first is read and goes on."""
    blocks = BlockManager(1000, block_size, prefix_caching=True)
    first = list(range(n_alike))
    blocks.allocate(0, n_alike)
    blocks.remember(0, first)
    tokens = [*first, -1, -2]
    shared = blocks.match(tokens)
    blocks.allocate(1, len(tokens), shared)
    start = len(shared) * block_size
    return len(blocks.append(1, start, len(tokens) - start))


def beam_share(n_beams: int, n_prompt: int, n_steps: int, block_size: int) -> float:
    """Blocks that beams hold at the end, over those of as many sequences that share nothing. Who
    goes on is drawn at every step, each from all beams alike."""
    rng = random.Random(0)
    blocks = BlockManager(100_000, block_size)
    blocks.allocate(0, n_prompt)
    for beam in range(1, n_beams):
        blocks.fork(0, beam)
    texts = {beam: list(range(n_prompt)) for beam in range(n_beams)}
    free = n_beams
    for step in range(n_steps):
        new: dict[int, list[int]] = {}
        for parent in (rng.choice(sorted(texts)) for _ in range(n_beams)):
            blocks.fork(parent, free)
            new[free] = [*texts[parent], -1 - step * n_beams - len(new)]
            free += 1
        for old in texts:
            blocks.free(old)
        for beam, text in new.items():
            blocks.append(beam, len(text) - 1, 1)
        texts = new
    held = {block for table in blocks.tables.values() for block in table}
    assert len(held) == least_blocks(list(texts.values()), block_size)
    return len(held) / sum(map(len, blocks.tables.values()))


def places_of_table(table: tuple[int, ...], block_size: int) -> int:
    """Different places that the tokens of a full table lie in."""
    n = len(table) * block_size
    return len({table[p // block_size] * block_size + p % block_size for p in range(n)})
