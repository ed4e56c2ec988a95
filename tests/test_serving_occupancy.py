"""Every place of a pool is counted once, whoever gives the room; pieces lie apart, and pages leave
no gap."""

import random

import hypothesis.strategies as st
import pytest
from draws import draws
from hypothesis import given

from twophase.errata import blocks as witness
from twophase.serving import BlockManager
from twophase.serving.allocation import Buddy, FirstFit
from twophase.serving.occupancy import Job, Occupancy, OnePiece, Pages, Room, occupy
from twophase.theory.paging import (
    blocks_of,
    break_even_link_bytes_per_s,
    least_blocks,
    recompute_s,
    swap_s,
)

KINDS = ("used", "reserved", "internal", "external", "left")


def jobs(seed: int, n: int = 30) -> list[Job]:
    rng = random.Random(seed)
    return [
        Job(rng.randrange(1, 30), out := rng.randrange(1, 30), out + rng.randrange(9))
        for _ in range(n)
    ]


def rooms() -> dict[str, Room]:
    return {
        "longest": OnePiece(FirstFit(128), lambda job: 64),
        "exact": OnePiece(FirstFit(128), lambda job: job.longest),
        "compacted": OnePiece(FirstFit(128), lambda job: job.longest, compacting=True),
        "buddy": OnePiece(Buddy(128), lambda job: job.longest),
        "pages": Pages(128, 4),
        "watermark": Pages(128, 4, watermark=5),
    }


@pytest.mark.parametrize("name", rooms())
@draws(20)
@given(seed=st.integers(0, 10_000))
def test_every_place_is_one_of_five_at_every_step(name: str, seed: int) -> None:
    found = occupy(jobs(seed), rooms()[name], 128)
    assert sum(getattr(found, kind) for kind in KINDS) == found.steps * 128
    assert min(getattr(found, kind) for kind in KINDS) >= 0
    assert found.internal == 0 or name not in ("exact", "compacted")
    assert found.external == 0 or name not in ("compacted", "pages", "watermark", "longest")


def test_one_job_after_the_other_is_what_a_person_would_count() -> None:
    """Two jobs of 2 + 3 tokens in a pool of 8: each holds 2, 3, 4 places, and the last token none.
    In pieces of 8 the second waits for three steps, in blocks of 2 for none."""
    two = [Job(2, 3, 5)] * 2
    found = occupy(two, OnePiece(FirstFit(8), lambda job: 8), 8)
    assert found == Occupancy(8, 3, 3, 2 + 3 + 4, 2 + 1 + 0, 4 * 3, 0, 0, 6, 0, 0)
    paged = occupy(two, Pages(8, 2), 8)
    assert (paged.all_steps, paged.steps) == (3, 0)


def test_who_came_last_gives_way_and_is_done_in_the_end() -> None:
    found = occupy([Job(4, 5, 5), Job(4, 5, 5)], Pages(12, 4), 12)
    # the first takes the third block for its fifth token; the second has four, and no block left
    assert (found.preemptions, found.read_again, found.all_steps) == (1, 4, 5 + 4)
    assert occupy([Job(4, 5, 5)] * 2, Pages(12, 4, watermark=2), 12).preemptions == 0


@draws(30)
@given(seed=st.integers(0, 10_000), buddy=st.booleans())
def test_pieces_never_meet_and_gaps_are_what_is_left(seed: int, buddy: bool) -> None:
    rng, pool = random.Random(seed), (Buddy if buddy else FirstFit)(64)
    for step in range(60):
        if pool.pieces and rng.random() < 0.45:
            pool.free(rng.choice(sorted(pool.pieces)))
        else:
            n = rng.randrange(1, 20)
            size = pool.takes(n)
            starts = range(0, 65 - size, size if buddy else 1)
            taken = {
                p for start, length in pool.pieces.values() for p in range(start, start + length)
            }
            fits = any(not taken & set(range(start, start + size)) for start in starts)
            assert pool.allocate(step, n) == fits
        places = [p for start, length in pool.pieces.values() for p in range(start, start + length)]
        assert len(set(places)) == len(places)
        assert all(0 <= p < 64 for p in places)
        assert sum(length for _, length in pool.gaps) == pool.n_free == 64 - len(places)
    if not buddy:
        lengths = {seq: length for seq, (_, length) in pool.pieces.items()}
        moved = pool.compact()
        assert moved <= sum(lengths.values())
        assert {seq: length for seq, (_, length) in pool.pieces.items()} == lengths
        assert len(pool.gaps) <= 1
        assert pool.compact() == 0


@pytest.mark.parametrize(
    ("deed", "sentence"),
    [
        (lambda: FirstFit(0), "number of places"),
        (lambda: Buddy(48), "power of two; got 48"),
        (lambda: Buddy(64).compact(), "multiples of their lengths"),
        (lambda: Job(3, 4, 3), "most_output is a whole number of at least 4"),
        (lambda: occupy([Job(9, 1, 1)], Pages(8, 4), 8), "job 0 does not fit"),
        (lambda: Pages(8, 4, watermark=-1), "watermark"),
        (lambda: Pages(10, 4), "10 places are no whole number of blocks of 4"),
        (lambda: occupy([Job(2, 5, 5)], OnePiece(FirstFit(8), lambda job: 4), 8), "6 places asks"),
        (lambda: FirstFit(8).free(3), "sequence 3 has no piece"),
        (lambda: Buddy(8).allocate(0, 0), "number of tokens is a whole number of at least 1"),
        (lambda: least_blocks([[1]], 0), "at least 1 place"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(deed: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        deed()


def test_a_piece_is_not_given_twice() -> None:
    for pool in (FirstFit(16), Buddy(16)):
        pool.allocate(0, 4)
        with pytest.raises(ValueError, match="sequence 0 has a piece"):
            pool.allocate(0, 4)


@draws(40)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 6))
def test_forks_hold_as_many_blocks_as_there_are_beginnings(seed: int, size: int) -> None:
    rng, manager = random.Random(seed), BlockManager(400, size)
    n = rng.randrange(1, 10)
    manager.allocate(0, n)
    texts = {0: [(0, i) for i in range(n)]}
    for child in range(1, 12):
        parent = rng.choice(sorted(texts))
        if rng.random() < 0.5:
            manager.fork(parent, child)
            texts[child] = list(texts[parent])
        elif len(texts) > 1 and rng.random() < 0.3:
            manager.free(parent)
            del texts[parent]
        else:
            manager.append(parent, len(texts[parent]), 1)
            texts[parent].append((parent, len(texts[parent])))
        held = {block for table in manager.tables.values() for block in table}
        together = len({tuple(text) for text in texts.values()}) < len(texts)
        assert together or len(held) == least_blocks(list(texts.values()), size)
        assert len(held) <= sum(blocks_of(len(text), size) for text in texts.values())


def test_a_swap_takes_as_long_as_a_recomputation_at_the_break_even_link() -> None:
    for n in (1, 100, 40_000):
        link = break_even_link_bytes_per_s(131_072, 16e9, 989e12)
        assert swap_s(n, 131_072, link) == pytest.approx(recompute_s(n, 16e9, 989e12))


def test_witnesses_of_the_ledger_count_what_a_person_would() -> None:
    assert witness.copies_at_parting(10, 3, 4) == 2
    assert witness.copies_at_parting(8, 3, 4) == 0
    assert witness.count_after_parting(10, 3, 4) == 2
    assert witness.copies_for_a_prefix(40, 16) == 0
    assert witness.places_of_table((7, 2, 7), 4) == 8
    assert witness.beam_share(1, 20, 9, 4) == 1
