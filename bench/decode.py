"""A decode step of a whole model: ours (plain and compiled), transformers and llama.cpp on the same
random weights, in one run. In int8 and int4, ours compiled and llama.cpp's Q8_0 and Q4_0, with the
step in bf16 beside them. `--tokens 5`: a pass over so many tokens of a sequence, with the logits of
each, as drafted ones are verified.

All take turns, with reads of as many bytes as the step has to read; so ratios are taken within a
round. `--layers` makes the model smaller, `--clock cpu` counts processor time, which a busy machine
spoils less (use it with `--threads 1`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import torch
from decode_peers import Missing, llama_cpp_step, transformers_step
from reading import at_least_1, reads, rested, seconds

from twophase.kernels.quantization.integers import IntegerFormat, encode
from twophase.measure import Table, race, si
from twophase.measure.decode_steps import Case, Step, record
from twophase.measure.stopwatch import Race
from twophase.measure.system import cpu_name
from twophase.measure.yardsticks import gemm
from twophase.models.compiled import CompiledTransformer
from twophase.models.quantize import quantize
from twophase.models.quantize.linear import QuantizedLinear, weight_bytes
from twophase.models.transformer import Config, Transformer

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
# Ours, with as many bits for a weight as llama.cpp's: blocks of 32 with a scale of 16 bits.
FORMATS = {
    "int8": (IntegerFormat(8, 32, scale_dtype=torch.bfloat16), "Q8_0"),
    "int4": (IntegerFormat(4, 32, scale_dtype=torch.bfloat16), "Q4_0"),
}
PEERS = {"transformers": transformers_step, "llama.cpp": llama_cpp_step}
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def random_llama(layers: int, dtype: torch.dtype) -> Transformer:
    """A Llama of 349 million parameters if it has 24 layers."""
    config = Config(L=layers, D=1024, F=2816, N=16, K=8, H=64, V=32_000, tied=False, norm_eps=1e-5)
    torch.manual_seed(0)
    return Transformer(config).to(dtype).eval().requires_grad_(False)


def our_step(
    model: Transformer, run: Callable[..., torch.Tensor], S: int, B: int, T: int
) -> Callable:
    """A step of ours on noise, with a cache in the dtype of the weights."""
    cache = model.new_cache(B, S + T)
    cache.fill_with_noise(S)
    tokens = torch.full((B, T), 5)

    return lambda: run(tokens, cache, commit=False)


def rounded(model: Transformer, how: IntegerFormat) -> Transformer:
    """The model with all matrices but the embedding in codes."""
    made = quantize(model, "nearest", how)
    made.lm_head = QuantizedLinear(encode(model.lm_head.weight, how))
    return made


def step_bytes(model: Transformer, S: int, B: int) -> int:
    """What a step has to read: every matrix once but the embedding, and the cache."""
    table = model.embed_tokens.weight
    cache = B * S * 2 * model.config.L * model.config.K * model.config.H * table.element_size()
    return weight_bytes(model) - table.nbytes + cache


def ways(
    model: Transformer, S: int, B: int, T: int, name: str, without: list[str]
) -> dict[str, tuple[Callable[[], object], int]]:
    """The steps that are there, each with the bytes that it has to read."""
    n_bytes = step_bytes(model, S, B)
    found: dict[str, tuple[Callable[[], object], int]] = {}

    def add(way: str, make: Callable[[], Callable[[], object]], size: int) -> None:
        try:
            found[way] = make(), size
        except Missing as reason:
            print(reason)

    if name in FORMATS:
        how, theirs = FORMATS[name]
        small = rounded(model, how)
        size = step_bytes(small, S, B)
        run = CompiledTransformer(small)
        add(f"ours, compiled, {name}", lambda: our_step(small, run, S, B, T), size)
        if "llama.cpp" not in without:
            add(f"llama.cpp, {theirs}", lambda: llama_cpp_step(model, S, B, T, theirs), size)
    compiled = CompiledTransformer(model)
    add("ours, compiled", lambda: our_step(model, compiled, S, B, T), n_bytes)
    if name in DTYPES:
        add("ours, plain", lambda: our_step(model, model, S, B, T), n_bytes)
    for peer, make in PEERS.items():
        if peer not in without and (name in DTYPES or peer == "llama.cpp"):
            add(peer, lambda make=make: make(model, S, B, T), n_bytes)
    return found


def run(model: Transformer, S: int, B: int, name: str, options: argparse.Namespace) -> Case:
    """Race all steps that are there for one context and batch."""
    T = options.tokens
    found = ways(model, S, B, T, name, options.without)
    n_bytes = next(iter(found.values()))[1]
    # a bf16 is an fp32, and some processors multiply only the latter fast
    squares = {
        dtype: gemm(dtype, "cpu") for dtype in {"fp32", "fp32" if name == "fp32" else "bf16"}
    }
    limits = reads(n_bytes)
    timed = limits | {dtype: multiply for dtype, (multiply, _) in squares.items()}
    timed |= {way: step for way, (step, _) in found.items()}
    with torch.inference_mode():
        result = race(
            rested(timed), budget_s=options.seconds, warmup=1, min_rounds=options.rounds,
            clock=CLOCKS[options.clock],
        )  # fmt: skip
    fastest = min(limits, key=lambda way: result[way].median_s)
    bytes_per_s = n_bytes / result[fastest].median_s
    flops_per_s = max(flops / result[dtype].median_s for dtype, (_, flops) in squares.items())
    needed = 2 * B * T * (model.n_params - model.embed_tokens.weight.numel()) / flops_per_s
    peer = next((way for way in found if way.startswith("llama.cpp")), None)
    steps = [
        Step(
            way, result[way].median_s, max(size / bytes_per_s, 0 if way in limits else needed),
            result.ratio(fastest, way) * size / n_bytes, peer and over(result, way, peer),
        )
        for way, size in [*((w, n_bytes) for w in limits), *((w, s) for w, (_, s) in found.items())]
    ]  # fmt: skip
    return Case(
        cpu_name(), date.today().isoformat(), torch.get_num_threads(), name, model.n_params,
        model.config.L, B, S, result[fastest].count, bytes_per_s, flops_per_s, peer, steps, T,
    )  # fmt: skip


def over(result: Race, way: str, peer: str) -> tuple[float, float, float]:
    """How many times as long as the peer, within a round: median, first and third quartile."""
    pairs = zip(result[way].samples_s, result[peer].samples_s, strict=True)
    low, median, high = statistics.quantiles([a / b for a, b in pairs], n=4, method="inclusive")
    return median, low, high


def table(case: Case) -> Table:
    """A case as a person reads it."""
    rows: list[list[object]] = []
    for step in case.steps:
        row = [step.way, si(step.median_s, "s"), si(step.predicted_s, "s"), step.share]
        if step.over_peer:
            median, low, high = step.over_peer
            row += [median, f"{low:.2f} to {high:.2f}"]
        rows.append(row)
    columns = ["step", "median", "predicted", "share of the fastest read"]
    if case.peer:
        columns += [f"time over {case.peer}'s", "quartiles"]
    what = "decode step" if case.T == 1 else f"pass over {case.T} tokens"
    caption = (
        f"one {what}, {case.parameters / 1e6:.0f}M parameters in {case.dtype}, B = {case.B},"
        f" {case.S:,} cached tokens, {case.threads} threads, {case.rounds} rounds; read"
        f" {si(case.read_bytes_per_s, 'B/s')}, product {si(case.product_flops_per_s, 'FLOP/s')}"
    )
    return Table(rows, columns, caption, digits=3)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=at_least_1, default=24, help="default 24: 349M parameters")
    parser.add_argument("--contexts", type=at_least_1, nargs="+", default=[256, 2048])
    parser.add_argument("--batches", type=at_least_1, nargs="+", default=[1, 16])
    parser.add_argument("--tokens", type=at_least_1, default=1, help="of a sequence (default 1)")
    parser.add_argument("--dtypes", nargs="+", choices=[*DTYPES, *FORMATS], default=list(DTYPES))
    parser.add_argument("--threads", type=at_least_1, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument(
        "--seconds", type=seconds, default=30.0, help="budget per table (default 30)"
    )
    parser.add_argument("--rounds", type=at_least_1, default=7, help="rounds at least (default 7)")
    parser.add_argument("--without", nargs="*", choices=PEERS, default=[], help="to leave out")
    parser.add_argument("--json", type=Path, help="a file of cases, to which these are added")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in options.dtypes:
        model = random_llama(options.layers, DTYPES.get(name, torch.bfloat16))
        for B in options.batches:
            for S in options.contexts:
                case = run(model, S, B, name, options)
                print(table(case), end="\n\n", flush=True)
                if options.json:
                    record(case, options.json)


if __name__ == "__main__":
    main()
