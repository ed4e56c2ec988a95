"""Runs of real engines on real cards, and what they say that engines spend beyond the floor.

`serving_runs.csv`: 1,037 runs of TensorRT-LLM, vLLM and SGLang on H100, H200 and B200, one a line,
in SI units; from `silicon_sample.csv` of aiconfigurator 0.12 (NVIDIA and contributors, Apache-2.0,
github.com/ai-dynamo/aiconfigurator), aggregated serving, without duplicates and without runs that
were queueing. The format of the KV cache is not in it: fp8 is likely for TensorRT-LLM, bf16 for the
others, so that is what is expected of them; floors are held with fp8 for all.

`python -m twophase.measure.serving_runs` fits the constants in some ten seconds, says how far they
lie from models, engines and chips that were left out, and writes `theory/expected.json`.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from twophase.measure.fit import non_negative
from twophase.theory import catalog, expected
from twophase.theory.deployment import Deployment
from twophase.theory.expected import FITTED, Fitted, Overheads, in_several_machines, kind
from twophase.theory.plan import deployment
from twophase.theory.workload import Workload

RUNS = Path(__file__).with_name("serving_runs.csv")
MODELS = {
    "meta-llama/Llama-3.1-70B": "llama-3.1-70b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
    "Qwen/Qwen3-32B": "qwen3-32b",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "deepseek-ai/DeepSeek-V3": "deepseek-v3",
    "deepseek-ai/DeepSeek-R1": "deepseek-v3",
}
TERMS = ("L", "experts", "between", "B", "prompts", "prompts_experts")
NONE = Overheads(0, 0, 0, 0, 0, 0, {"dense": [0, 0, 0], "experts": [0, 0, 0]})


@dataclass(frozen=True)
class Run:
    """What was asked of an engine and what it took, in seconds. `deployment`: the same on paper,
    with as many sequences in flight as fit."""

    model: str
    hardware: str
    engine: str
    n_chips: int
    concurrency: int
    n_prompt: int
    n_output: int
    ttft_s: float
    tpot_s: float
    deployment: Deployment
    line: int = 0  # of its file, the heading being line 1

    @property
    def queues(self) -> bool:
        """Whether not all of its sequences fit at once, so that some wait for others to end."""
        return self.deployment.w.batch < self.concurrency

    @cached_property
    def floor_s(self) -> float:
        """Its time per output token without what the constants add."""
        return expected.step_tpot_s(self.deployment, NONE)

    @cached_property
    def terms(self) -> dict[str, float]:
        """How often a step has what each constant is the price of."""
        return step_terms(self.deployment)

    @cached_property
    def first_terms(self) -> list[float]:
        """The same of the first token: the prompt, the prompts of others, layers."""
        prompt_s = expected.prompt_at_peak_s(self.deployment)
        return [prompt_s, self.concurrency * prompt_s, float(self.deployment.arch.L)]

    @property
    def group(self) -> tuple[str, str, str, int]:
        """What was the same for many runs."""
        return self.model, self.hardware, self.engine, self.n_chips


def read(path: Path = RUNS) -> list[Run]:
    """The runs of a file with the columns of `serving_runs.csv`, without those whose weights alone
    do not fit the memory that they are said to have run in. ValueError for a model or a column that
    is not known."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    runs = [replace(_run(row), line=i) for i, row in enumerate(rows, 2)]
    return [run for run in runs if run.deployment.w.batch > 0 and run.deployment.fits(1, 1)]


def _run(row: Mapping[str, str]) -> Run:
    try:
        arch = catalog.model(MODELS.get(row["model"], row["model"]))
        chip = catalog.hardware(row["hardware"].split("_")[0])
        n_prompt, n_output = int(row["input_tokens"]), int(row["output_tokens"])
        asked = Workload(
            batch=int(row["concurrency"]),
            context=n_prompt + n_output,
            n_prompt=n_prompt,
            n_output=n_output,
            n_chips=int(row["chips"]),
            weights=row["precision"],
            compute=row["precision"],
            kv="fp8" if row["engine"] == "trtllm" else "bf16",
            split_cache="heads" if arch.mla is None else "evenly",
        )
        times = float(row["ttft_s"]), float(row["tpot_s"])
    except KeyError as error:
        raise ValueError(f"A run has no column {error}.") from None
    d = deployment(arch, chip, asked)
    in_flight = max(1, min(asked.batch, d.max_batch(n_prompt + n_output // 2)))
    return Run(
        arch.name, chip.name, row["engine"], asked.n_chips, asked.batch, n_prompt, n_output, *times,
        d.with_workload(replace(asked, batch=in_flight)),
    )  # fmt: skip


def step_terms(d: Deployment) -> dict[str, float]:
    """How often a step has what each constant is the price of."""
    L, B = d.arch.L, d.w.batch
    mixed, prompts = d.arch.moe is not None, B / (d.w.n_output or 1) * expected.prompt_at_peak_s(d)
    return {
        "L": L,
        "experts": L * mixed,
        "between": L * (mixed and in_several_machines(d)),
        "B": L * B,
        "prompts": 0.0 if mixed else prompts,
        "prompts_experts": prompts if mixed else 0.0,
    }


def fit(runs: Sequence[Run]) -> Overheads:
    """The constants that fit these runs best: the least mean of the relative misses' logarithms,
    so that a run far off does not pull the others."""
    step = least_misses(
        [list(run.terms.values()) for run in runs],
        [run.floor_s for run in runs],
        [run.tpot_s for run in runs],
    )
    costs = dict(zip(TERMS, step, strict=True))
    first = {name: _first_token(runs, name) for name in ("dense", "experts")}
    return Overheads(
        layer_s=costs["L"],
        layer_s_per_sequence=costs["B"],
        layer_s_experts=costs["experts"],
        layer_s_between_machines=costs["between"],
        prompt_factor=costs["prompts"],
        prompt_factor_experts=costs["prompts_experts"],
        first_token=first,
    )


def _first_token(runs: Sequence[Run], name: str) -> list[float]:
    """Factor, per sequence, seconds a layer: of the runs of this kind in which nobody queued."""
    own = [run for run in runs if kind(run.deployment) == name and not run.queues]
    if not own:
        return [1.0, 0.0, 0.0]
    seconds = [run.ttft_s for run in own]
    return least_misses([run.first_terms for run in own], [0.0] * len(own), seconds)


def least_misses(
    terms: Sequence[Sequence[float]], floors: Sequence[float], seconds: Sequence[float]
) -> list[float]:
    """Costs, none below zero, with floor + terms x costs = seconds as nearly as can be: least
    squares of relative misses again and again, each run weighing less the farther it is off.
    ValueError unless every run has its terms, a floor and a positive time."""
    if not len(terms) == len(floors) == len(seconds) or len({len(row) for row in terms}) != 1:
        raise ValueError(
            f"every run has terms, a floor and seconds; got {len(terms)}, {len(floors)} and"
            f" {len(seconds)} of them."
        )
    if not all(0 < s < math.inf for s in seconds):
        raise ValueError("a run takes a positive number of seconds.")
    times = np.asarray(seconds)
    amounts = np.asarray(terms, dtype=float) / times[:, None]  # [runs, terms]
    left = 1 - np.asarray(floors) / times
    used = amounts.any(axis=0)
    scale = np.where(used, np.abs(amounts).max(axis=0), 1)
    amounts = amounts[:, used] / scale[used]
    costs = non_negative(amounts, left)
    for _ in range(40):
        share = np.maximum(amounts @ costs + 1 - left, 1e-9)  # expected / measured
        weight = (np.maximum(np.abs(np.log(share)), 0.03) * share) ** -0.5
        costs = (costs + non_negative(amounts * weight[:, None], left * weight)) / 2
    found = np.zeros(len(used))
    found[used] = costs / scale[used]
    return [float(cost) for cost in found]


Miss = Callable[[Run, Overheads], float]


def step_ratio(run: Run, o: Overheads) -> float:
    """Measured over expected time per output token."""
    return run.tpot_s / expected.step_tpot_s(run.deployment, o)


def first_ratio(run: Run, o: Overheads) -> float:
    """Measured over expected time to the first token."""
    return run.ttft_s / expected.first_token_s(run.deployment, o)


LEFT_OUT: dict[str, Callable[[Run], Any]] = {
    "model": lambda run: run.model,
    "engine": lambda run: run.engine,
    "chip": lambda run: run.hardware,
    "set-up": lambda run: run.group,
}


def held_out(runs: Sequence[Run], key: Callable[[Run], Any]) -> list[tuple[Run, Overheads]]:
    """Each run with constants that were fitted without any run that is like it in `key`."""
    found = []
    for value in dict.fromkeys(map(key, runs)):
        own = fit([run for run in runs if key(run) != value])
        found += [(run, own) for run in runs if key(run) == value]
    return found


def median_miss(pairs: Sequence[tuple[Run, Overheads]], name: str, ratio: Miss) -> float:
    """The median of |expected / measured - 1| over the runs of one kind."""
    return median(abs(1 / ratio(run, o) - 1) for run, o in pairs if kind(run.deployment) == name)


def misses_of_each(
    pairs: Sequence[tuple[Run, Overheads]], key: Callable[[Run], Any]
) -> dict[str, dict[str, float]]:
    """The median miss of every group of runs that are alike in `key`, by kind."""
    found: dict[str, dict[str, float]] = {}
    for value in dict.fromkeys(key(run) for run, _ in pairs):
        own = [(run, o) for run, o in pairs if key(run) == value]
        kinds = sorted({kind(run.deployment) for run, _ in own})
        found[str(value)] = {name: median_miss(own, name, step_ratio) for name in kinds}
    return found


def middle(pairs: Sequence[tuple[Run, Overheads]], name: str, ratio: Miss) -> tuple[float, float]:
    """Between what measured / expected lies for eight of ten runs of one kind."""
    ratios = sorted(ratio(run, o) for run, o in pairs if kind(run.deployment) == name)
    low, high = np.quantile(ratios, [0.1, 0.9])
    return float(low), float(high)


def fit_all(runs: Sequence[Run]) -> Fitted:
    """Constants of all runs, and how far they are from what they had not seen."""
    overheads, kinds = fit(runs), ("dense", "experts")
    left_out = {name: held_out(runs, key) for name, key in LEFT_OUT.items()}
    seen = [(run, overheads) for run in runs]
    calm = [(run, o) for run, o in left_out["set-up"] if not run.queues]
    misses = {
        name: {k: median_miss(pairs, k, step_ratio) for k in kinds}
        for name, pairs in ({"none": seen} | left_out).items()
    }
    misses["first token"] = {k: median_miss(calm, k, first_ratio) for k in kinds}
    return Fitted(
        overheads=overheads,
        measured_over_expected={k: middle(left_out["set-up"], k, step_ratio) for k in kinds},
        first_over_expected={k: middle(calm, k, first_ratio) for k in kinds},
        held_out=misses,
        each={
            name: misses_of_each(left_out[name], LEFT_OUT[name])
            for name in ("model", "engine", "chip")
        },
        n_runs=len(runs),
        n_left_out=sum(1 for _ in RUNS.open(encoding="utf-8")) - 1 - len(runs),
    )


def main() -> None:
    """Fit, write, and print the misses."""
    found = fit_all(read())
    FITTED.write_text(json.dumps(_rounded(asdict(found)), indent=2) + "\n", encoding="utf-8")
    print(f"{found.n_runs} runs; median miss of the time per output token, left out:")
    for name, misses in found.held_out.items():
        print(f"  {name:12}" + "".join(f"  {k} {miss:.1%}" for k, miss in misses.items()))


def _rounded(value: Any) -> Any:
    """To four digits, so that the file is the same on every machine."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, (list, tuple)) else value


if __name__ == "__main__":
    main()
