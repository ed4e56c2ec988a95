"""Record the trace that comes with the package: users who ask, read the answer, and ask again.

`python -m twophase.serving.record` writes `recorded.jsonl`. Each user has a piece of held-out code.
A trained model continues it: for some to the end of the line, for others to an empty line. The user
reads that, and asks again with all of it and the next lines. So prompts grow and begin alike,
answers are as long as the model makes them, and nobody asks while an answer is awaited. Passes are
priced, not timed, so that times are the same on every machine.
"""

import heapq
import math
import random

import torch

from twophase.models import checkpoints, corpus
from twophase.models.transformer import Transformer
from twophase.serving.config import EngineConfig
from twophase.serving.engine import Engine
from twophase.serving.model_runner import ModelRunner
from twophase.serving.request import Request, SamplingParams
from twophase.serving.simulation import VirtualClock
from twophase.serving.workload import RECORDED, Arrival, Lengths, save_trace

MODEL, USERS, TURNS, LONGEST = "gqa", 12, 3, 480
FIRST, NEXT = Lengths(80, 2.4, 400), Lengths(40, 1.8, 160)  # tokens of a first prompt, and added
PASS_S, TOKEN_S = 4e-3, 8e-5  # what a pass takes, and each of its tokens on top
READ_S, THINK_S = 2e-3, 0.1  # a token is read in, and the median of what follows
LINE = SamplingParams(max_tokens=96, temperature=0.7, stop=((10,), (corpus.END,)))
BLOCK = SamplingParams(max_tokens=96, temperature=0.7, stop=((10, 10), (corpus.END,)))


class PricedRunner(ModelRunner):
    """Runs its passes, and moves a clock by what they are said to take."""

    clock: VirtualClock

    def run(
        self,
        n_new: dict[Request, int],
        tables: dict[int, list[int]],
        window_tables: dict[int, list[int]] | None = None,
    ) -> dict[Request, torch.Tensor]:
        """The pass itself; then its price."""
        logits = super().run(n_new, tables, window_tables)
        self.clock.now_s += PASS_S + TOKEN_S * sum(n_new.values())
        return logits


class User:
    """Somebody with a text of their own: what was read of it, and answered, is the next prompt."""

    def __init__(self, number: int, text: list[int]) -> None:
        self.rng, self.text, self.prompt = random.Random(number), text, list[int]()
        self.turns, self.wants = 0, LINE if number % 3 else BLOCK

    def ask(self) -> list[int]:
        """The next prompt; its beginning is the last one with its answer, while that is short."""
        more = (NEXT if self.prompt else FIRST).draw(self.rng)
        if len(self.prompt) + more > LONGEST:
            self.prompt, more = [], FIRST.draw(self.rng)
        self.prompt, self.text = self.prompt + self.text[:more], self.text[more:]
        self.turns += 1
        return self.prompt

    def pause_s(self) -> float:
        """Until the next prompt is there."""
        return THINK_S * math.exp(math.log(2.0) * self.rng.gauss(0.0, 1.0))


def record(model: Transformer) -> list[Arrival]:
    """Serve all users until each has asked TURNS times."""
    held_out = corpus.load("held_out").tolist()
    starts = range(len(held_out) // USERS // 2, len(held_out), len(held_out) // USERS)
    users = [User(i, held_out[s : s + 4 * LONGEST]) for i, s in enumerate(starts)][:USERS]
    clock, config = VirtualClock(), EngineConfig(1024, 16, USERS, 1024)
    runner = PricedRunner(model, config.n_blocks, config.block_size, config.max_seqs)
    runner.clock = clock
    engine, asked = Engine(runner, config, clock=clock), dict[int, User]()
    queue = [(user.pause_s(), i) for i, user in enumerate(users)]
    heapq.heapify(queue)
    while queue or engine.busy:
        if not engine.busy:
            clock.now_s = max(clock.now_s, queue[0][0])
        while queue and queue[0][0] <= clock.now_s:
            at_s, i = heapq.heappop(queue)
            asked[engine.add(users[i].ask(), users[i].wants, at_s)] = users[i]
        for request in engine.step():
            user = asked[request.id]
            user.prompt = user.prompt + request.tokens
            if user.turns < TURNS:
                wait_s = READ_S * len(request.tokens) + user.pause_s()
                heapq.heappush(queue, (clock.now_s + wait_s, users.index(user)))
    return [Arrival(round(r.arrival_s, 4), r.prompt, len(r.tokens)) for r in engine.run()]


if __name__ == "__main__":
    torch.set_num_threads(1)
    save_trace(record(checkpoints.load(MODEL)), RECORDED)
