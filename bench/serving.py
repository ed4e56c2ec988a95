"""Tokens a second of an engine with 16 seats, all requests there from the start: ours, continuous
and static, beside transformers (static, and its continuous batching) and llama.cpp (its server, and
its passes under our scheduler), on the same random weights and the same requests, in one run.

All take turns; ratios are taken within a round. Tokens beyond an answer's length do not count, so
what a static batch spends on them is its loss. Prompts and answers have log-normal lengths.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from decode import DTYPES, random_llama
from decode_peers import Missing
from llama_server import llama_server, process_time
from reading import at_least_1, rested, seconds
from serving_peers import (
    Answers,
    Serve,
    llama_cpp_continuous,
    ours,
    transformers_continuous,
    transformers_static,
)

from twophase.measure import Table, race
from twophase.measure.stopwatch import Race
from twophase.models.transformer import Transformer
from twophase.serving import ContinuousBatching, StaticBatching
from twophase.serving.workload import Arrival, Lengths, arrivals

CLOCKS = {"wall": time.perf_counter, "cpu": process_time}
OURS, SERVER = "ours, continuous", "llama.cpp's server"
Make = Callable[[Transformer, int, int], Serve]
WAYS: dict[str, Make] = {
    OURS: partial(ours, policy=ContinuousBatching),
    "ours, weights as they are": partial(ours, policy=ContinuousBatching, pack=False),
    "ours, static": partial(ours, policy=StaticBatching),
    "transformers, static": transformers_static,
    "transformers, continuous": transformers_continuous,
    "llama.cpp's passes, our scheduler": llama_cpp_continuous,
    SERVER: llama_server,
}


def requests(n: int, prompt: int, answer: int) -> list[Arrival]:
    """n requests with these median lengths, at most four times as long."""
    lengths = [Lengths(median, 1.8, 4 * median) for median in (prompt, answer)]
    return arrivals(1.0, n, *lengths, vocabulary=31_000)


def alike(found: Answers, expected: Answers) -> float:
    """The share of answers whose first four tokens are the expected ones: on random weights two
    orders of the same sum soon part."""
    return sum(a[:4] == b[:4] for a, b in zip(found, expected, strict=True)) / len(found)


def over_ours(result: Race, name: str) -> tuple[float, str]:
    """How many times as long as ours, within a round: median, and the quartiles."""
    pairs = zip(result[name].samples_s, result[OURS].samples_s, strict=True)
    ratios = [theirs / own for theirs, own in pairs]
    if len(ratios) < 2:
        return ratios[0], ""
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return median, f"{low:.2f} to {high:.2f}"


def run(
    model: Transformer,
    asked: Sequence[Arrival],
    seats: int,
    ways: Mapping[str, Make],
    clock: str,
    budget_s: float,
) -> Table:
    """Race all that are here, after one run of each that shows what it says."""
    most = max(len(one.prompt) + one.n_output for one in asked)
    expected = WAYS[OURS](model, most, seats)(asked)
    n_tokens = sum(one.n_output for one in asked)
    found: dict[str, Callable[[], object]] = {}
    same: dict[str, float] = {}
    for name, make in ways.items():
        try:
            serve = make(model, most, seats)
            begun = time.perf_counter()
            said = serve(asked)
            print(f"{name}: {time.perf_counter() - begun:.1f} s at first", flush=True)
        except Missing as reason:
            print(f"{name}: {reason}")
            continue
        if list(map(len, said)) != [one.n_output for one in asked]:
            print(f"{name} is left out: its answers are not as long as was asked for.")
            continue
        same[name] = alike(said, expected)
        found[name] = partial(serve, asked)
    result = race(rested(found), budget_s=budget_s, clock=CLOCKS[clock], warmup=1, min_rounds=1)
    rows: list[list[object]] = [
        [name, n_tokens / result[name].median_s, *over_ours(result, name), same[name]]
        for name in found
    ]
    caption = (
        f"{len(asked)} requests, {sum(len(one.prompt) for one in asked):,} tokens in prompts,"
        f" {n_tokens:,} in answers, {seats} seats, {model.config.L} layers,"
        f" {torch.get_num_threads()} threads, {clock} time, {result[OURS].count} rounds"
    )
    head = ["way", "tokens/s", "time over ours", "quartiles", "answers that begin as ours"]
    return Table(rows, head, caption, digits=3)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=at_least_1, default=8, help="of D = 1,024 (default 8)")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--seats", type=at_least_1, default=16)
    parser.add_argument("--requests", type=at_least_1, default=48)
    parser.add_argument("--prompt", type=at_least_1, default=128, help="median tokens")
    parser.add_argument("--answer", type=at_least_1, default=32, help="median tokens")
    parser.add_argument("--only", default="", help="ways whose name has this in it, beside ours")
    parser.add_argument("--llama-server", metavar="PATH", help="llama.cpp's, if not on the PATH")
    parser.add_argument("--threads", type=at_least_1, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--seconds", type=seconds, default=60.0, help="budget (default 60)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = random_llama(options.layers, DTYPES[options.dtype])
    asked = requests(options.requests, options.prompt, options.answer)
    ways = {name: make for name, make in WAYS.items() if options.only in name or name == OURS}
    if SERVER in ways:
        ways[SERVER] = partial(llama_server, binary=options.llama_server)
    print(run(model, asked, options.seats, ways, options.clock, options.seconds))


if __name__ == "__main__":
    main()
