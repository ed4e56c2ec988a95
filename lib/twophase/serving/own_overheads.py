"""What an engine on this machine spends beyond the floor: the course's own engine, run on models
with random weights, and the constants of `theory.expected` that fit its times.

Each run keeps B requests in flight, a new prompt for each that ends, and times those that begin and
end meanwhile. `measure.serving_runs` fits published runs of large engines in the same way; so one
formula serves a laptop and a node. One run, of a model and a batch that no other has, stays out of
the fit: how far it is missed is what the fit is worth on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

import torch

from twophase.measure.serving_runs import NONE, least_misses, step_terms
from twophase.measure.yardsticks import default_device
from twophase.models.config import Config
from twophase.models.transformer import Transformer
from twophase.serving.config import EngineConfig
from twophase.serving.engine import Engine
from twophase.serving.request import SamplingParams
from twophase.theory import expected
from twophase.theory.architecture import Architecture
from twophase.theory.deployment import Deployment
from twophase.theory.hardware import Hardware
from twophase.theory.workload import Workload

FORMAT = "fp32"
N_OUTPUT = 24
BLOCK = 16
Progress = Callable[[float], None]


@dataclass(frozen=True)
class Case:
    """What is run: a model's sizes, requests in flight, tokens of a prompt."""

    config: Config
    batch: int
    n_prompt: int

    def deployment(self, chip: Hardware) -> Deployment:
        """The same on paper."""
        c = self.config
        arch = Architecture("random", L=c.L, D=c.D, F=c.F, N=c.N, K=c.K, H=c.H, V=c.V)
        arch = replace(arch, tied_embeddings=c.tied)
        asked = Workload(
            batch=self.batch,
            context=self.n_prompt + N_OUTPUT,
            n_prompt=self.n_prompt,
            n_output=N_OUTPUT,
            weights=FORMAT,
            kv=FORMAT,
            compute=FORMAT,
        )
        return Deployment(arch, chip, asked)


def shape(L: int, D: int) -> Config:
    """A model of L layers of width D, as Llama has them."""
    return Config(L=L, D=D, F=3 * D, N=D // 64, K=D // 128, H=64)


DEEP, WIDE, BETWEEN = shape(12, 256), shape(4, 640), shape(8, 384)
CASES = tuple(
    Case(config, batch, n_prompt)
    for config in (DEEP, WIDE)
    for batch, n_prompt in ((1, 32), (1, 192), (4, 32), (4, 192), (12, 32), (12, 128))
)
LEFT_OUT = Case(BETWEEN, 7, 80)


@dataclass(frozen=True)
class OwnOverheads:
    """The constants that a card takes (`Hardware.overheads`), the median miss of the runs that gave
    them, and of the run that did not: seconds from token to token, measured and expected."""

    overheads: dict[str, float]
    fit_miss: float
    measured_s: float
    expected_s: float
    n_runs: int

    @property
    def held_out_miss(self) -> float:
        """By how much the run that was left out is missed."""
        return abs(self.expected_s / self.measured_s - 1)


def random_model(config: Config) -> Transformer:
    """A model with random weights, where this machine computes."""
    torch.manual_seed(0)
    return Transformer(config).eval().requires_grad_(False).to(default_device())


def run_s(
    model: Transformer,
    case: Case,
    n_output: int = N_OUTPUT,
    clock: Callable[[], float] | None = None,
) -> float:
    """Median seconds from token to token with `case.batch` requests in flight, by the engine's own
    clock or another."""
    B = case.batch
    blocks = -(-(case.n_prompt + n_output) // BLOCK) + 1
    config = EngineConfig(
        n_blocks=B * blocks + 1, block_size=BLOCK, max_seqs=B, max_batched_tokens=256 + B
    )
    engine = Engine(model, config, clock=clock)
    draw = torch.Generator().manual_seed(0)
    for i in range(3 * B):
        length = n_output if i >= B else max(1, (i + 1) * n_output // B)  # the first end in turn
        prompt = torch.randint(256, (case.n_prompt,), generator=draw).tolist()
        engine.add(prompt, SamplingParams(max_tokens=length))
    done = sorted(engine.run(), key=lambda request: request.id)
    steady = done[B : 2 * B]
    return median((r.times_s[-1] - r.times_s[0]) / (len(r.times_s) - 1) for r in steady)


def own_overheads(
    chip: Hardware, budget_s: float = 40.0, progress: Progress | None = None
) -> OwnOverheads:
    """Run the engine for about `budget_s` seconds (every case at least once) and fit. `chip`: this
    machine's rates. ValueError if it has no rate for fp32, the format of the runs."""
    chip.peak_flops_per_s(FORMAT)
    cases = (*CASES, LEFT_OUT)
    models = {case.config: random_model(case.config) for case in cases}
    for config, model in models.items():
        run_s(model, Case(config, 1, 32), 4)  # what is slow only at first
    seen: dict[Case, list[float]] = {case: [] for case in cases}
    begun = time.perf_counter()
    while not seen[LEFT_OUT] or time.perf_counter() - begun < budget_s * (1 - 1 / len(seen)):
        for i, case in enumerate(cases):
            seen[case].append(run_s(models[case.config], case))
            if progress:  # a first round may take longer than the budget, or a part of it
                done = 1.0 if seen[LEFT_OUT] else (i + 1) / len(cases)
                progress(min(1.0, (time.perf_counter() - begun) / budget_s, done))
    return fitted(chip, {case: median(times) for case, times in seen.items()})


def fitted(chip: Hardware, seconds: dict[Case, float]) -> OwnOverheads:
    """The constants that these times give, `LEFT_OUT` not among them."""
    used = [case for case in seconds if case != LEFT_OUT]
    layer_s, per_sequence, factor = fit(chip, used, [seconds[case] for case in used])
    own = {"layer_s": layer_s, "layer_s_per_sequence": per_sequence, "prompt_factor": factor}
    mine = replace(chip, overheads=own)

    def says(case: Case) -> float:
        d = case.deployment(mine)
        return expected.step_tpot_s(d, expected.overheads(d))

    return OwnOverheads(
        own,
        fit_miss=median(abs(says(case) / seconds[case] - 1) for case in used),
        measured_s=seconds[LEFT_OUT],
        expected_s=says(LEFT_OUT),
        n_runs=len(used),
    )


def fit(chip: Hardware, cases: Sequence[Case], seconds: Sequence[float]) -> list[float]:
    """Seconds a layer and step, seconds a layer and sequence, and how many times as long as at the
    peak rate a prompt takes (at least once): what misses these times least."""
    of = [case.deployment(chip) for case in cases]
    floors = [expected.step_tpot_s(d, NONE) for d in of]
    terms = [[found[name] for name in ("L", "B", "prompts")] for found in map(step_terms, of)]
    found = least_misses(terms, floors, seconds)
    if found[2] < 1:  # a rate that was reached beside products this small is no peak
        prompts = [row[2] for row in terms]
        floors = [floor + prompt for floor, prompt in zip(floors, prompts, strict=True)]
        found = [*least_misses([row[:2] for row in terms], floors, seconds), 1.0]
    return found
