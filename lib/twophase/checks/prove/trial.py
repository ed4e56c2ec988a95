"""The trial of an exercise: each mutant before the check, at many seeds."""

from __future__ import annotations

import time
import tomllib
import warnings
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import twophase.checks
from twophase.checks.answer import LocalAnswer
from twophase.checks.exercise import Case, Exercise
from twophase.checks.judge import Bench
from twophase.checks.prove.limits import TooLong, cpu_limit, memory_limit
from twophase.checks.prove.mutate import Mutant, mutants
from twophase.checks.prove.sources import Program, answers, own
from twophase.protocol.codec import encode_each
from twophase.protocol.errors import ProtocolError

LIMIT_S = 0.15  # of processor time, for one mutant at one seed: at least this,
SLOWER = 10  # or so many times what the program itself takes,
LONGEST_S = 60.0  # which should be far less than this
ENDLESS = -1  # in place of the case that a mutant fails
FEW = 3  # seeds, for what is known to be no error


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


def try_all(
    mutants: Sequence[tuple[Program, Mutant]],
    benches: Sequence[Bench],
    known: Collection[str] = (),
) -> Iterator[Tried]:
    """Each mutant at every seed, one after the other; those that are `known` to be no errors at the
    first few."""
    same = _same_cases(benches)
    limits: dict[str, float] = {}
    for program, mutant in mutants:
        if program.called not in limits:
            limits[program.called] = _limit_s(program, benches[0])
        asked, limit_s = benches, limits[program.called]
        if mutant.key in known:  # slower is no error: it has as long as the one suspected seed
            asked, limit_s = benches[:FEW], 10 * limit_s
        killed = _killed(program, mutant.source, asked, same, limit_s)
        yield Tried(mutant.key, killed, len(asked))


def _killed(
    program: Program,
    source: str,
    benches: Sequence[Bench],
    same: Collection[int],
    limit_s: float,
) -> int:
    """The number of seeds at which this source fails.

    The case that it failed at the first seed is asked first, and alone, at the others; if no seed
    changes that case, at none. One that computes too long at two seeds is endless at all; if it is
    one seed only, it has ten times as long there, so that no busy machine looks like a bad seed.
    """
    at = failed(program, source, benches[0], limit_s)

    def alone(bench: Bench) -> int | None:
        if at is None or not 0 <= at < len(bench.cases):
            return None
        return failed(program, source, _only(bench, at), limit_s)

    if at in same and alone(benches[0]) is not None:
        return len(benches)
    found = [at]
    for bench in benches[1:]:
        place = alone(bench)
        found.append(failed(program, source, bench, limit_s) if place is None else place)
        if found.count(ENDLESS) == 2:
            return len(benches)
    if ENDLESS in found:
        i = found.index(ENDLESS)
        found[i] = failed(program, source, benches[i], 10 * limit_s)
    return sum(place is not None for place in found)


def _only(bench: Bench, at: int) -> Bench:
    """The bench with one of its cases."""
    one = copy(bench)
    one.cases, one.expected = [bench.cases[at]], [bench.expected[at]]
    return one


def _same_cases(benches: Sequence[Bench]) -> set[int]:
    """The places of the cases that are the same at all of these seeds."""
    first, *others = [[_content(case) for case in bench.cases] for bench in benches]
    return {
        i
        for i, content in enumerate(first)
        if content is not None and all(content in each[i : i + 1] for each in others)
    }


def _content(case: Case) -> bytes | None:
    """What tells a case from others; None if it cannot be told (a function of its own, say)."""
    try:
        return encode_each([case.name, [*case.args], dict(case.kwargs)])
    except ProtocolError:
        return None


def _limit_s(program: Program, bench: Bench) -> float:
    """What a mutant of this program may take: several times as long as the program itself."""
    start = time.process_time()
    failed(program, program.source, bench, LONGEST_S)
    return max(LIMIT_S, SLOWER * (time.process_time() - start))


def failed(program: Program, source: str, bench: Bench, limit_s: float = LIMIT_S) -> int | None:
    """The place of the case that this source fails, the last one if it fails only when asked
    again; ENDLESS if it computes too long; None if the judge takes it for a right answer."""
    try:
        with memory_limit(), cpu_limit(limit_s), warnings.catch_warnings(action="ignore"):
            verdict = bench.judge(LocalAnswer(program.names(source)), whole=False)
    except TooLong:
        return ENDLESS
    except (Exception, SystemExit):  # it cannot even be defined
        return 0
    return None if verdict.right else len(verdict.outcomes) - 1


def accepted(programs: Sequence[Program], benches: Sequence[Bench]) -> list[Program]:
    """Those of the programs that are right at every seed: of the others no mutant tells
    anything."""
    return [p for p in programs if all(failed(p, p.source, b, LONGEST_S) is None for b in benches)]


def benches(exercise: Exercise, seeds: int) -> Iterator[Bench]:
    """The exercise's cases at so many seeds, and what the reference shows."""
    return (Bench(exercise, seed) for seed in range(seeds))


def reasons(exercise: Exercise) -> dict[str, str]:
    """The mutants of an exercise that are no errors, each with the reason: key -> reason.

    They stand in `reasons_file`, in a table for each exercise: `"reason" = ["key", "key"]`.
    """
    file = reasons_file(exercise)
    if not file.exists():
        return {}
    table: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8")).get(exercise.slug, {})
    return {key: reason for reason, keys in table.items() for key in keys}


def reasons_file(exercise: Exercise) -> Path:
    """Where the reasons for a topic's exercises are written down, beside them."""
    return Path(twophase.checks.__path__[0]) / exercise.topic / "equivalent.toml"
