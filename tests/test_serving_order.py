"""Which free block is taken first, what is counted of a block, and who joins first: each a rule of
its own."""

import pytest
from test_serving_fuzz import model

from twophase.measure.events import EventLog
from twophase.serving import BlockManager, Engine, EngineConfig, SamplingParams


def kept(manager: BlockManager, seq: int, tokens: list[int]) -> list[int]:
    """The table of a sequence that came, was computed, and went."""
    table = list(manager.allocate(seq, len(tokens)))
    manager.remember(seq, tokens)
    manager.free(seq)
    return table


def test_what_lay_behind_a_forgotten_block_is_taken_before_what_is_still_known() -> None:
    gone: list[int] = []
    rule = {"prefix_index": "radix", "evict": lambda _: gone.pop()}
    manager = BlockManager(6, 1, prefix_caching=True, **rule)
    kept(manager, 0, [7, 8, 9])
    first, *behind = kept(manager, 1, [1, 2, 3])
    gone.append(first)
    assert manager.allocate(2, 1) == [first]
    assert set(manager.allocate(3, 2)) == set(behind)  # without asking the rule again
    assert manager.find([7, 8, 9, 0]).n_tokens == 3


def test_a_block_that_stands_for_nothing_is_taken_before_what_is_known() -> None:
    manager = BlockManager(3, 1, prefix_caching=True)
    kept(manager, 0, [1])
    unknown = list(manager.allocate(1, 2))
    manager.free(1)
    assert set(manager.allocate(2, 2)) == set(unknown)
    assert manager.find([1, 0]).n_tokens == 1


def test_hits_are_of_what_a_block_stands_for_and_go_with_it() -> None:
    manager = BlockManager(4, 1, prefix_caching=True)
    (block,) = kept(manager, 0, [1])
    manager.allocate(1, 1, manager.match([1, 0]))
    manager.free(1)
    assert manager.hits[block] == 1
    for seq in range(4):
        manager.allocate(10 + seq, 1)
    assert manager.hits == [0] * 4  # forgotten, and with it what was counted


def test_hits_move_with_their_block_when_a_pool_is_compacted() -> None:
    manager = BlockManager(4, 1, prefix_caching=True)
    manager.allocate(0, 2)
    (block,) = kept(manager, 1, [1])
    manager.allocate(2, 1, manager.match([1, 0]))
    manager.free(0)
    moves = dict(manager.compact())
    assert moves == {block: 0}
    assert (manager.hits[0], manager.hits[block]) == (1, 0)


def test_a_block_of_which_a_copy_was_taken_was_used_last() -> None:
    manager = BlockManager(5, 2, prefix_caching=True, prefix_index="radix")
    (old,) = kept(manager, 0, [1, 2])
    (other,) = kept(manager, 1, [7, 8])
    found = manager.find([1, 9, 0])
    assert found == ((), 1, old)
    manager.allocate(2, 2, found.blocks, found.partial)
    manager.allocate(3, 4)
    manager.allocate(4, 2)  # somebody is forgotten: not the one that was just used
    assert manager.find([1, 2, 0]).n_tokens == 2
    assert manager.find([7, 8, 0]).n_tokens == 0
    assert manager.tables[4] == [other]


def test_each_shared_block_that_is_written_to_is_copied() -> None:
    manager = BlockManager(6, 2)
    before = list(manager.allocate(0, 4))
    manager.fork(0, 1)
    assert manager.blocks_to_append(0, 1, 3) == 2
    copies = manager.append(0, 1, 3)
    assert [source for source, _ in copies] == before
    assert [target for _, target in copies] == manager.tables[0]
    assert manager.tables[1] == before
    assert [manager.ref_count[block] for block in (*before, *manager.tables[0])] == [1] * 4


def test_a_rule_of_ones_own_is_asked_only_of_blocks_that_nothing_lies_behind() -> None:
    seen: list[list[int]] = []

    def rule(candidates) -> int:
        seen.append(list(candidates))
        return seen[-1][-1]

    manager = BlockManager(5, 1, prefix_caching=True, prefix_index="radix", evict=rule)
    _, *ends = kept(manager, 0, [1, 2, 3])
    _, other = kept(manager, 1, [1, 4])[:2]
    manager.allocate(2, 1)  # the one that stands for nothing
    manager.allocate(3, 1)
    assert [set(blocks) for blocks in seen] == [{ends[-1], other}]


def test_a_beginning_that_was_free_longer_goes_after_what_lies_behind_it() -> None:
    manager = BlockManager(3, 1, prefix_caching=True, prefix_index="radix")
    (beginning,) = manager.allocate(0, 1)
    manager.remember(0, [7])
    _, end = manager.allocate(1, 2)
    manager.remember(1, [7, 8])  # its own block of 7 is not known: that of 0 is
    manager.free(0)
    manager.free(1)
    manager.allocate(2, 1)  # that block
    assert manager.find([7, 8, 9]).n_tokens == 2
    assert manager.allocate(3, 1) == [end]
    assert manager.find([7, 8, 9]).blocks == (beginning,)


@pytest.mark.parametrize(
    ("config", "first"),
    [
        (EngineConfig(8, 2, 3, 30), ((0, 1) * 7, 1)),  # a long prompt, and 8 blocks
        (EngineConfig(60, 2, 3, 30), ((0, 1), 3)),  # three answers, and 3 seats
    ],
)
def test_whoever_does_not_fit_holds_up_those_behind(config: EngineConfig, first: tuple) -> None:
    """Else short requests that keep coming would let a large one starve."""
    engine = Engine(model("grouped"), config)
    prompt, answers = first
    engine.add((0, 1, 1), SamplingParams(max_tokens=2))
    engine.step()
    large = engine.add(prompt, SamplingParams(max_tokens=2, n=answers))
    engine.add((1, 1), SamplingParams(max_tokens=2))
    engine.scheduler.schedule(0.0)
    assert [request.id for request in engine.scheduler.running] == [0]
    assert engine.scheduler.waiting[0].id == large


def test_whoever_gave_way_comes_back_before_those_that_never_ran() -> None:
    """Of 5 blocks two sequences take 4; the second gives way to the first, and a third waits."""
    engine = Engine(model("grouped"), EngineConfig(5, 2, 2, 8))
    for _ in range(3):
        engine.add((0, 1, 1), SamplingParams(max_tokens=6))
    for _ in range(20):
        engine.step()
        if engine.requests[1].preemptions:
            break
    assert [request.id for request in engine.scheduler.waiting] == [1, 2]
    assert engine.requests[1].n_missing == engine.requests[1].length  # it is read from the start
    engine.run()
    ends = [engine.requests[i].times_s[0] for i in (1, 2)]
    assert ends == sorted(ends)


def test_whole_prompts_stay_within_the_budget_or_have_a_pass_to_themselves() -> None:
    log = EventLog()
    engine = Engine(model("grouped"), EngineConfig(40, 2, 4, 8, chunked_prefill=False), log=log)
    for n_prompt in (5, 6, 12, 2):
        engine.add((0, 1) * (n_prompt // 2) + (1,) * (n_prompt % 2), SamplingParams(max_tokens=3))
    engine.run()
    passes = [event["n_new"] for event in log.select("pass")]
    assert passes[0] == [5]  # 6 more are too many
    assert [12] in passes
    assert all(sum(n_new) <= 8 or len(n_new) == 1 for n_new in passes)


@pytest.mark.parametrize(("reserve", "held"), [(False, 2), (True, 4)])
def test_where_all_is_reserved_a_request_holds_its_longest_from_the_start(
    reserve: bool, held: int
) -> None:
    """A prompt of 3 tokens and 5 of 6 answered ones, since the last is never read."""
    engine = Engine(model("grouped"), EngineConfig(20, 2, 2, 8, reserve=reserve))
    engine.add((0, 1, 1), SamplingParams(max_tokens=6))
    engine.step()
    assert len(engine.blocks.tables[0]) == held
