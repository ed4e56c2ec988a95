"""What is asked of an engine: traces of arrivals, drawn or recorded, and what came of them."""

import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from twophase.kernels.span import whole
from twophase.serving.request import Request

PERCENTILES = (50, 95, 99)
RECORDED = Path(__file__).with_name("recorded.jsonl")


@dataclass(frozen=True)
class Arrival:
    """A request of a trace: when it comes, what it brings, and how long its answer is. ValueError
    for an empty prompt, no answer, or a time before 0."""

    at_s: float
    prompt: tuple[int, ...]
    n_output: int

    def __post_init__(self) -> None:
        if not self.prompt or not self.at_s >= 0:
            raise ValueError(
                "an arrival has a prompt of at least one token, and a time of at least 0; got"
                f" {len(self.prompt)} tokens at {self.at_s} s."
            )
        whole("n_output", self.n_output, 1)


@dataclass(frozen=True)
class Lengths:
    """Numbers of tokens, log-normal as those of people are: half of them below `median`, two thirds
    within a factor of `spread` of it; cut at `longest`. ValueError for a spread below 1, or a
    median that is less than 1 or more than the longest."""

    median: int
    spread: float
    longest: int

    def __post_init__(self) -> None:
        whole("longest", self.longest, whole("median", self.median, 1))
        if not 1 <= self.spread < math.inf:
            raise ValueError(f"a spread is a factor of at least 1; got {self.spread}.")

    def draw(self, rng: random.Random) -> int:
        """One of them, at least 1."""
        factor = math.exp(math.log(self.spread) * rng.gauss(0.0, 1.0))
        return max(1, min(self.longest, round(self.median * factor)))


def arrivals(
    per_s: float,
    n: int,
    prompts: Lengths,
    outputs: Lengths,
    *,
    burstiness: float = 1.0,
    vocabulary: int = 256,
    seed: int = 0,
) -> list[Arrival]:
    """n requests at `per_s` a second on average.

    The gaps between them are drawn from a gamma law whose squared coefficient of variation is
    `burstiness`: 1 is Poisson's process, more comes in bursts, less more evenly. ValueError for a
    rate or a burstiness that is not positive.
    """
    if not per_s > 0 or not burstiness > 0:
        raise ValueError(
            f"a rate and a burstiness are positive; got {per_s} a second and {burstiness}."
        )
    whole("the number of requests", n, 1)
    rng, at_s, made = random.Random(seed), 0.0, []
    for _ in range(n):
        at_s += rng.gammavariate(1 / burstiness, burstiness / per_s)
        prompt = tuple(rng.randrange(vocabulary) for _ in range(prompts.draw(rng)))
        made.append(Arrival(at_s, prompt, outputs.draw(rng)))
    return made


def save_trace(trace: Iterable[Arrival], path: Path) -> None:
    """Write a trace as JSON Lines: `at_s`, `prompt`, `n_output`."""
    path.write_text("".join(json.dumps(vars(one)) + "\n" for one in trace), encoding="utf-8")


def load_trace(path: Path) -> list[Arrival]:
    """A trace from JSON Lines; `n_prompt` in place of a prompt stands for so many zeros, where only
    lengths were recorded. ValueError, with the line's number, for one that is no arrival."""
    made = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            found = json.loads(line)
            prompt = found["prompt"] if "prompt" in found else [0] * found["n_prompt"]
            made.append(Arrival(float(found["at_s"]), tuple(prompt), found["n_output"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"line {number} of {path.name} is no arrival ({error}): it needs at_s, n_output,"
                " and prompt or n_prompt."
            ) from None
    return made


def recorded() -> list[Arrival]:
    """The trace that comes with the package: users who read an answer of the trained model and ask
    again (`python -m twophase.serving.record`)."""
    return load_trace(RECORDED)


def stretched(trace: Iterable[Arrival], factor: float) -> list[Arrival]:
    """The same requests, all times multiplied: below 1 they come faster. ValueError for a factor
    that is not positive."""
    if not factor > 0:
        raise ValueError(f"times are stretched by a positive factor; got {factor}.")
    return [replace(one, at_s=one.at_s * factor) for one in trace]


@dataclass(frozen=True)
class Summary:
    """What a served trace came to: percentiles in seconds, rates in tokens and requests a
    second."""

    ttft_s: dict[int, float]
    tpot_s: dict[int, float]
    latency_s: dict[int, float]
    tokens_per_s: float
    requests_per_s: float
    preemptions: int


def summarize(requests: Sequence[Request]) -> Summary:
    """From the first arrival to the last token. Percentiles of TPOT are those of all gaps, of all
    requests. ValueError if nobody has a token."""
    done = [request for request in requests if request.times_s]
    if not done:
        raise ValueError("no request has a token: serve the trace first.")
    first = min(request.arrival_s for request in requests)
    span_s = max(request.times_s[-1] for request in done) - first
    return Summary(
        percentiles([request.ttft_s for request in done]),
        percentiles([gap for request in done for gap in request.tpot_list_s]),
        percentiles([request.latency_s for request in done]),
        sum(len(request.tokens) for request in done) / span_s,
        len(done) / span_s,
        sum(request.preemptions for request in requests),
    )


def percentiles(values: Sequence[float]) -> dict[int, float]:
    """The smallest value that so many per cent of all are not above; NaN where there is none.
    ValueError if one is NaN, which has no place in an order."""
    if any(math.isnan(value) for value in values):
        raise ValueError("a percentile is asked of numbers, and NaN is among them.")
    ordered = sorted(values)
    if not ordered:
        return dict.fromkeys(PERCENTILES, float("nan"))
    return {p: ordered[max(0, -(-p * len(ordered) // 100) - 1)] for p in PERCENTILES}
