"""The trial of an exercise: each mutant before the check, at many seeds."""

from __future__ import annotations

import time
import tomllib
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import twophase.checks
from twophase.checks.answer import LocalAnswer
from twophase.checks.exercise import Exercise
from twophase.checks.judge import Bench
from twophase.checks.prove.limits import TooLong, cpu_limit, memory_limit
from twophase.checks.prove.mutate import Mutant, mutants
from twophase.checks.prove.sources import Program, answers, own

LIMIT_S = 0.3  # of processor time, for one mutant at one seed: at least this,
SLOWER = 4  # or so many times what the program itself takes,
LONGEST_S = 60.0  # which should be far less than this


@dataclass(frozen=True)
class Tried:
    """A mutant and the seeds whose cases it fails."""

    key: str
    killed: int
    seeds: int

    @property
    def verdict(self) -> str:
        if self.killed == self.seeds:
            return "killed"
        return "depends on the seed" if self.killed else "survives"


def programs(exercise: Exercise, folder: Path, with_misconceptions: bool = False) -> list[Program]:
    """What is mutated of an exercise."""
    found = [own(exercise, "reference", exercise.reference), *answers(exercise, folder)]
    if with_misconceptions:
        found += [own(exercise, m.slug, m.answer) for m in exercise.misconceptions]
    return [p for p in found if p is not None]


def all_mutants(
    programs: Sequence[Program], small: Collection[str] = ()
) -> list[tuple[Program, Mutant]]:
    """Every mutant of these programs; its key begins with the program's name. The first right
    answer is also tried with its arguments cut (`small`)."""
    found = []
    for i, program in enumerate(programs):
        for m in mutants(program.source, small if i == min(1, len(programs) - 1) else ()):
            found.append((program, Mutant(f"{program.called}: {m.key}", m.source)))
    return found


def try_all(mutants: Sequence[tuple[Program, Mutant]], benches: Sequence[Bench]) -> Iterator[Tried]:
    """Each mutant at every seed, one after the other. One that computes too long at two seeds is
    taken for endless at all."""
    limits: dict[str, float] = {}
    for program, mutant in mutants:
        if program.called not in limits:
            limits[program.called] = _limit_s(program, benches[0])
        killed = endless = 0
        for bench in benches:
            ended = passes(program, mutant.source, bench, limits[program.called])
            killed += ended is not True
            endless += ended is None
            if endless == 2:
                killed = len(benches)
                break
        yield Tried(mutant.key, killed, len(benches))


def _limit_s(program: Program, bench: Bench) -> float:
    """What a mutant of this program may take: several times as long as the program itself."""
    start = time.process_time()
    passes(program, program.source, bench, LONGEST_S)
    return max(LIMIT_S, SLOWER * (time.process_time() - start))


def passes(program: Program, source: str, bench: Bench, limit_s: float = LIMIT_S) -> bool | None:
    """Whether the judge takes this source for a right answer; None if it computes too long."""
    try:
        with memory_limit(), cpu_limit(limit_s), warnings.catch_warnings(action="ignore"):
            return bench.judge(LocalAnswer(program.names(source)), whole=False).right
    except TooLong:
        return None
    except (Exception, SystemExit):  # it cannot even be defined
        return False


def benches(exercise: Exercise, seeds: int) -> Iterator[Bench]:
    """The exercise's cases at so many seeds, and what the reference shows."""
    return (Bench(exercise, seed) for seed in range(seeds))


def reasons(exercise: Exercise) -> dict[str, str]:
    """The mutants of an exercise that are no errors, each with the reason: key -> reason.

    They stand in `equivalent.toml` beside the topic's exercises, in a table for each exercise:
    `"reason" = ["key", "key"]`.
    """
    file = Path(twophase.checks.__path__[0]) / exercise.topic / "equivalent.toml"
    if not file.exists():
        return {}
    table: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8")).get(exercise.slug, {})
    return {key: reason for reason, keys in table.items() for key in keys}
