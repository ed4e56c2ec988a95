"""Kernels and engine of chapter 15, put together, are right answers to its exercises, and are
withheld."""

from __future__ import annotations

import pytest
from hostile.worker import right_here_and_withheld_there

SETUP = "import torch\n"
TOGETHER = {  # (exercise, what it is made of): the source
    ("continuous_batching-pass_time", "a chip's load"): """
from types import SimpleNamespace
from twophase.theory.sharded_pass import Load
def pass_time(starts, n_new, model, bytes_per_s, flops_per_s):
    pairs = sum(n * (2 * start + n + 1) // 2 for start, n in zip(starts, n_new))
    caches = sum(starts) * model["kv_bytes"]
    flops = sum(n_new) * model["token_flops"] + pairs * model["pair_flops"]
    chip = SimpleNamespace(hbm_bytes_per_s=bytes_per_s, peak_flops_per_s=lambda dtype: flops_per_s)
    def seconds(read, flops):
        return Load(0, 0, *read, flops, ()).work_s(chip)
    read = model["weight_bytes"], caches
    return {
        "read_s": seconds(read, 0),
        "compute_s": seconds((0, 0), flops),
        "pass_s": seconds(read, flops),
    }
""",
    ("continuous_batching-ragged", "the kernel of the chapter"): """
from twophase.kernels.continuous_batching import ragged_attention as attend
def ragged_attention(q, k, v, caches, n_new):
    ends = [len(held) + n for (held, _), n in zip(caches, n_new)]
    keys, values = (
        torch.cat([x for pair, new in zip(caches, row.split(n_new)) for x in (pair[i], new)])
        for i, row in enumerate((k, v))
    )
    who = [i for i, n in enumerate(n_new) if n]
    if not who:
        return q
    parts = [keys.split(ends), values.split(ends)]
    kept = (torch.cat([part[i] for i in who]) for part in parts)
    return attend(q, *kept, [n_new[i] for i in who], [ends[i] for i in who])
""",
    ("continuous_batching-ragged", "a pool with a block for each request"): """
from twophase.kernels.paging import FlatSpan, PagedKV
def ragged_attention(q, k, v, caches, n_new):
    who = [i for i, n in enumerate(n_new) if n]
    if not who:
        return q
    starts = [len(caches[i][0]) for i in who]
    size = max(start + n_new[i] for start, i in zip(starts, who))
    pool = PagedKV(len(who), size, *k.shape[1:])
    for b, i in enumerate(who):
        for held, cache in zip(pool.held, caches[i]):
            held[b, : len(cache)] = cache
    places = range(len(who))
    span = FlatSpan(
        tuple(starts), tuple(n_new[i] for i in who), tuple((b,) for b in places), tuple(places),
        size,
    )
    pool.write(k[None], v[None], span)
    return pool.attend(q[None], span)[0]
""",
    ("continuous_batching-finishing", "an engine whose passes take a second"): """
from twophase.serving import ContinuousBatching, Engine, EngineConfig, SamplingParams
from twophase.serving import StaticBatching
from twophase.serving.simulation import SimulatedRunner, VirtualClock
def finishing(lengths, seats):
    def served(policy):
        clock = VirtualClock()
        runner = SimulatedRunner(lambda starts, n_new: 1.0, clock)
        n = len(lengths) + 1
        config = EngineConfig(n, 5000, min(seats, n), max_batched_tokens=n)
        engine = Engine(runner, config, policy=policy, clock=clock)
        ids = [engine.add([0], SamplingParams(max_tokens=n)) for n in lengths]
        while engine.busy:
            engine.step()
        return [round(engine.requests[i].times_s[-1]) for i in ids]
    last = served(StaticBatching())
    static = [max(last[i - i % seats : i - i % seats + seats]) for i in range(len(last))]
    return {"static": static, "continuous": served(ContinuousBatching())}
""",
    ("continuous_batching-finishing", "a pool whose places are seats"): """
from twophase.serving.occupancy import Job, occupy
class Seats:
    n_free, needs, grow, held = 0, lambda *a: 0, lambda *a: True, lambda *a: 0
    def __init__(self, lengths, seats, static):
        self.lengths, self.seats, self.static = lengths, seats, static
        self.now, self.ends, self.running, self.begins = 0, {}, set(), True
    def begin(self, seq, job, length):
        if len(self.running) == self.seats or (self.static and not self.begins):
            return False
        self.running.add(seq)
        self.ends[seq] = self.now + self.lengths[seq]
        self.begins = len(self.running) < self.seats
        return True
    def end(self, seq):
        self.now = self.ends[seq]
        self.running.remove(seq)
        self.begins = not self.running
def finishing(lengths, seats):
    def served(static):
        room = Seats(lengths, seats, static)
        occupy([Job(1, n, n) for n in lengths], room, 1)
        return [room.ends[i] for i in range(len(lengths))]
    last = served(True)
    static = [max(last[i - i % seats : i - i % seats + seats]) for i in range(len(last))]
    return {"static": static, "continuous": served(False)}
""",
    ("continuous_batching-ragged", "parts that merge, of one query each"): """
from twophase.kernels.sharding import Projected, length_split_decode
from twophase.kernels.simulated_ranks import simulate
def one(q, k, v):
    new = Projected(q.reshape(1, -1), k[-1].reshape(1, -1), v[-1].reshape(1, -1))
    step = lambda comm: length_split_decode(comm, new, k[None], v[None], q.shape[1], True)
    return simulate(1, step)[0].view(q.shape)
def ragged_attention(q, k, v, caches, n_new):
    outs, first = [], 0
    for cache, n in zip(caches, n_new):
        keys, values = (torch.cat([x, y[first : first + n]]) for x, y in zip(cache, (k, v)))
        held = len(cache[0])
        outs += [one(q[first + t], *(x[: held + t + 1] for x in (keys, values))) for t in range(n)]
        first += n
    return torch.stack(outs) if outs else q
""",
    ("continuous_batching-padding", "shares of the theory"): """
from twophase.theory.continuous_batching import padding_share
def padding(prompts, answers):
    places = [len(x) * max(x) for x in (prompts, answers)]
    one, other = padding_share(prompts), padding_share(answers)
    both = (places[0] * one + places[1] * other) / sum(places)
    return {"prompts": one, "answers": other, "both": both}
""",
    ("continuous_batching-percentiles", "the engine's report"): """
from twophase.serving.workload import percentiles
def latency_report(requests):
    begun = [r["times_s"] for r in requests if r["times_s"]]
    ttft = [r["times_s"][0] - r["arrival_s"] for r in requests if r["times_s"]]
    gaps = [b - a for times in begun for a, b in zip(times, times[1:])]
    three = [list(percentiles(x).values()) if x else [None] * 3 for x in (ttft, gaps)]
    return {"ttft_s": three[0], "tpot_s": three[1], "unanswered": len(requests) - len(begun)}
""",
}

LONG = "1,000 answers of 5,000 tokens, 30 seats"
SLOW = {"an engine whose passes take a second": LONG, "a pool whose places are seats": LONG}


@pytest.mark.parametrize(("exercise_id", "made_of"), TOGETHER)
def test_the_library_put_together_is_right_here_and_withheld_there(
    exercise_id: str, made_of: str
) -> None:
    source = SETUP + TOGETHER[exercise_id, made_of]
    right_here_and_withheld_there(exercise_id, source, SLOW.get(made_of, ""))
