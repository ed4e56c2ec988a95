"""A decode step of a whole model: ours (plain and compiled), transformers and llama.cpp on the same
random weights, in one run.

All take turns, with reads of as many bytes as the step has to read; so ratios are taken within a
round. `--layers` makes the model smaller, `--clock cpu` counts processor time, which a busy machine
spoils less (use it with `--threads 1`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from decode_peers import Missing, llama_cpp_step, transformers_step
from reading import at_least_1, reads, rested, seconds

from twophase.measure import Table, race, si
from twophase.models.compiled import CompiledTransformer
from twophase.models.transformer import Config, Transformer

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
PEERS = {"transformers": transformers_step, "llama.cpp": llama_cpp_step}
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def random_llama(layers: int, dtype: torch.dtype) -> Transformer:
    """A Llama of 349 million parameters if it has 24 layers."""
    config = Config(L=layers, D=1024, F=2816, N=16, K=8, H=64, V=32_000, tied=False, norm_eps=1e-5)
    torch.manual_seed(0)
    return Transformer(config).to(dtype).eval().requires_grad_(False)


def our_step(model: Transformer, run: Callable[..., torch.Tensor], S: int, B: int) -> Callable:
    """A step of ours on noise, with a cache in the dtype of the weights."""
    cache = model.new_cache(B, S + 1)
    cache.fill_with_noise(S)
    token = torch.full((B, 1), 5)

    def step() -> torch.Tensor:
        with torch.inference_mode():
            return run(token, cache, at=-1, commit=False)

    return step


def step_bytes(model: Transformer, S: int, B: int) -> int:
    """What a step has to read: every matrix once but the embedding, and the cache."""
    weights = sum(p.nbytes for p in model.parameters()) - model.embed_tokens.weight.nbytes
    c, size = model.config, model.embed_tokens.weight.element_size()
    return weights + B * S * 2 * c.L * c.K * c.H * size


def run(model: Transformer, S: int, B: int, options: argparse.Namespace) -> Table:
    """Race all steps that are there for one context and batch."""
    n_bytes = step_bytes(model, S, B)
    steps = reads(n_bytes)
    steps["ours, compiled"] = our_step(model, CompiledTransformer(model), S, B)
    steps["ours, plain"] = our_step(model, model, S, B)
    for name, make in PEERS.items():
        if name not in options.without:
            try:
                steps[name] = make(model, S, B)
            except Missing as reason:
                print(reason)
    result = race(
        rested(steps), budget_s=options.seconds, warmup=1, min_rounds=options.rounds,
        clock=CLOCKS[options.clock],
    )  # fmt: skip
    fastest = min((name for name in steps if name.startswith("read")),
                  key=lambda name: result[name].median_s)  # fmt: skip
    rows: list[list[object]] = []
    for name in steps:
        row: list[object] = [name, si(result[name].median_s, "s"), result.ratio(fastest, name)]
        if "llama.cpp" in steps:
            row.append(result.ratio(name, "llama.cpp"))
        rows.append(row)
    columns = ["step", f"median ({options.clock})", "share of the fastest read"]
    caption = (
        f"one decode step, {model.n_params / 1e6:.0f}M parameters in"
        f" {model.embed_tokens.weight.dtype}, B = {B}, {S:,} cached tokens,"
        f" {torch.get_num_threads()} threads, {result[fastest].count} rounds"
    )
    more = ["time over llama.cpp's"] if "llama.cpp" in steps else []
    return Table(rows, [*columns, *more], caption, digits=3)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=at_least_1, default=24, help="default 24: 349M parameters")
    parser.add_argument("--contexts", type=at_least_1, nargs="+", default=[256, 2048])
    parser.add_argument("--batches", type=at_least_1, nargs="+", default=[1, 16])
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--threads", type=at_least_1, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument(
        "--seconds", type=seconds, default=30.0, help="budget per table (default 30)"
    )
    parser.add_argument("--rounds", type=at_least_1, default=7, help="rounds at least (default 7)")
    parser.add_argument("--without", nargs="*", choices=PEERS, default=[], help="to leave out")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for dtype in options.dtypes:
        model = random_llama(options.layers, DTYPES[dtype])
        for B in options.batches:
            for S in options.contexts:
                print(run(model, S, B, options), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
