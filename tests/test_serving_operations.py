"""Any number of operations, on an engine whose runner keeps tokens where a model keeps keys: it
says what it reads in the blocks, so that whatever is lost, shared by mistake or overwritten is
said."""

import random
import zlib
from collections import Counter
from dataclasses import replace

import pytest
import torch

from twophase.kernels.sampling import stop_reason
from twophase.serving import (
    ContinuousBatching,
    DynamicBatching,
    Engine,
    EngineConfig,
    Request,
    SamplingParams,
    ShortestFirst,
    StaticBatching,
    Status,
)
from twophase.serving.block_manager import check_conserved

V = 4
POLICIES = [ContinuousBatching, ShortestFirst, StaticBatching, lambda: DynamicBatching(0.2)]


def following(tokens: tuple[int, ...]) -> int:
    """What is said after these tokens: it depends on each of them, and on their order."""
    return zlib.crc32(bytes(tokens)) % V


class Reader:
    """A runner whose blocks hold tokens, and whose states hold all that a sequence has read."""

    V, most_positions = V, 0

    def __init__(self, n_blocks: int, block_size: int, max_seqs: int, has_states: bool) -> None:
        self.size, self.has_states = block_size, has_states
        self.cells = [[-1] * block_size for _ in range(n_blocks)]
        self.slots: dict[int, int] = {}
        self.free_slots = list(range(max_seqs))
        self.states: list[tuple[int, ...]] = [()] * max_seqs

    def seat(self, seq: int) -> None:
        slot = self.slots[seq] = self.free_slots.pop()
        self.states[slot] = ()

    def unseat(self, seq: int) -> None:
        if seq in self.slots:
            self.free_slots.append(self.slots.pop(seq))

    def copy_block(self, source: int, target: int) -> None:
        self.cells[target] = list(self.cells[source])

    def copy_window_block(self, source: int, target: int) -> None:
        raise AssertionError("there are no windows")

    def copy_state(self, source: int, target: int) -> None:
        self.states[self.slots[target]] = self.states[self.slots[source]]

    def save(self, seq, table):
        return [[list(self.cells[block]) for block in table], self.states[self.slots[seq]]]

    def restore(self, seq, table, saved):
        cells, self.states[self.slots[seq]] = saved
        for block, cell in zip(table, cells, strict=False):
            self.cells[block] = list(cell)

    def run(self, n_new: dict[Request, int], tables: dict[int, list[int]]):
        for request, n in n_new.items():  # all is written before anything is read
            new = request.all_tokens[request.n_computed : request.n_computed + n]
            for p, token in enumerate(new, request.n_computed):
                self.cells[tables[request.id][p // self.size]][p % self.size] = token
            self.states[self.slots[request.id]] += new
        logits = {}
        for request, n in n_new.items():
            end, table = request.n_computed + n, tables[request.id]
            read = tuple(self.cells[table[p // self.size]][p % self.size] for p in range(end))
            if self.has_states:
                assert self.states[self.slots[request.id]] == read
            if n == request.n_missing:
                logits[request] = torch.eye(V)[following(read)]  # [V]
        return logits


def alone(prompt: tuple[int, ...], params: SamplingParams) -> list[int]:
    """What the naive loop says."""
    said: list[int] = []
    while stop_reason(said, params.max_tokens, params.stop) is None:
        said.append(following((*prompt, *said)))
    return said


class Crowd:
    """An engine, people who use it as chance has it, and what happened."""

    def __init__(self, rng: random.Random, done: Counter) -> None:
        self.rng, self.now, self.done = rng, 0.0, done
        c = EngineConfig(
            n_blocks=rng.randint(10, 30),
            block_size=rng.choice([1, 2, 3, 4]),
            max_seqs=rng.randint(3, 6),
            max_batched_tokens=rng.randint(6, 24),
            chunked_prefill=rng.random() < 0.7,
            reserve=rng.random() < 0.2,
            preemption=rng.choice(["recompute", "swap"]),
        )
        index = rng.choice([None, "hash", "radix"])
        self.config = replace(c, prefix_caching=True, prefix_index=index) if index else c
        runner = Reader(c.n_blocks, c.block_size, c.max_seqs, has_states=index is None)
        policy = rng.choice(POLICIES)()
        self.engine = Engine(runner, self.config, policy=policy, clock=self.clock)
        self.most = c.n_blocks * c.block_size  # tokens of the longest request
        self.texts = [self.draw(8) for _ in range(3)]  # beginnings that are shared

    def clock(self) -> float:
        self.now += 0.01
        return self.now

    def draw(self, most: int) -> tuple[int, ...]:
        return tuple(self.rng.randrange(V) for _ in range(self.rng.randint(1, most)))

    def add(self) -> None:
        prompt = self.rng.choice([(), *self.texts]) + self.draw(8)
        prompt = prompt[: self.most // 2]
        n = self.rng.choice([0, 1, 2, 5, 9, 12])
        stop = self.rng.choice([(), ((3,), (1, 2))])
        params = SamplingParams(min(n, self.most - len(prompt)), stop=stop)
        answers = self.rng.choice([1, 1, 1, 2, 3])
        self.engine.add(prompt, replace(params, n=answers))

    def one(self, status: Status | None = None) -> Request | None:
        found = [r for r in self.engine.requests.values() if status in (None, r.status)]
        return self.rng.choice(found) if found else None

    def operate(self) -> None:
        """One operation."""
        what = self.rng.choices(["add", "step", "abort", "fork", "compact"], [6, 20, 2, 3, 1])[0]
        if what == "add" and len(self.engine.scheduler.waiting) < 6:
            self.add()
        elif what == "abort" and (request := self.one()):
            self.engine.abort(request.id)
        elif what == "fork" and (parent := self.one(Status.RUNNING)):
            seats = self.engine.scheduler.seats_taken < self.config.max_seqs
            if parent.n_missing == 1 and seats:
                self.engine.fork(parent.id)
        elif what == "compact":
            self.engine.compact()
        else:
            what = "step"
            self.engine.step()
        self.done[what] += 1
        self.hold()

    def hold(self) -> None:
        """Blocks are conserved, and those that run have each a seat and a table."""
        engine = self.engine
        check_conserved(engine.blocks)
        running = {request.id for request in engine.scheduler.running}
        assert running == set(engine.blocks.tables) == set(engine.runner.slots)
        assert len(running) <= self.config.max_seqs

    def leave(self) -> None:
        """Nobody comes any more: everybody is served to the end, nothing is left behind."""
        engine = self.engine
        left = sum(r.n_missing + r.params.max_tokens for r in engine.requests.values()
                   if r.status is not Status.FINISHED)  # fmt: skip
        for _ in range(60 * left + 60):  # of each pass of a sequence alone, and its preemptions
            if not engine.busy:
                break
            engine.step()
            self.hold()
        assert not engine.busy
        assert engine.blocks.n_free == engine.blocks.n_blocks
        assert not engine.blocks.tables
        assert not engine._aside
        assert not engine.scheduler.saved
        assert sorted(engine.runner.free_slots) == list(range(self.config.max_seqs))
        for request in engine.requests.values():
            want = alone(request.prompt, request.params)
            ended = request.finish_reason != "abort"
            assert request.tokens == (want if ended else want[: len(request.tokens)])
            self.done["preempted"] += request.preemptions
            self.done["found"] += request.n_shared


def operate(n: int, seed: int) -> Counter:
    """So many operations, on one engine after the other."""
    rng, done = random.Random(seed), Counter()
    while sum(done[what] for what in ("add", "step", "abort", "fork", "compact")) < n:
        crowd = Crowd(rng, done)
        for _ in range(rng.choice([20, 100, 400])):
            crowd.operate()
        crowd.leave()
    return done


def test_after_any_operations_each_says_what_it_says_alone_and_nothing_is_left() -> None:
    done = operate(4_000, seed=0)
    assert min(done.values()) > 20  # each kind of operation, preemptions, and prefixes found


@pytest.mark.more
@pytest.mark.parametrize("seed", [1, 2])
def test_a_hundred_thousand_operations_lose_nothing(seed: int) -> None:
    operate(100_000, seed)
