"""python -m twophase.checks.prove kv_cache-max_batch [--seeds 20]: what the check of an exercise
lets through."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from twophase.checks import registry
from twophase.checks.exercise import Exercise
from twophase.checks.judge import Bench
from twophase.checks.prove import misconceptions, right, separated
from twophase.checks.prove.ranges import Drawn, arguments, drawn
from twophase.checks.prove.sources import answers
from twophase.checks.prove.standing import standing
from twophase.checks.prove.trial import (
    Tried,
    accepted,
    all_mutants,
    benches,
    programs,
    reasons,
    reasons_file,
    try_all,
)


def main(argv: list[str]) -> int:
    """Prove the named exercises, or all of a topic. 0 if nothing is left to do."""
    parser = argparse.ArgumentParser(prog="python -m twophase.checks.prove", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="EXERCISE", help="an exercise's id, or a topic")
    parser.add_argument("--seeds", type=int, default=20, help="seeds that each mutant meets (20)")
    parser.add_argument("--every", type=int, default=1, help="try each n-th mutant only")
    parser.add_argument("--misconceptions", action="store_true", help="mutate these as well")
    parser.add_argument("--answers", type=Path, default=Path("tests/answers"), metavar="FOLDER")
    parser.add_argument("--toml", action="store_true", help="print survivors for equivalent.toml")
    chosen = parser.parse_args(argv)
    if not chosen.answers.is_dir():
        parser.error(
            f"there is no folder {chosen.answers}, which has the right answers to mutate; run this"
            " in the course's own folder, or name one with --answers"
        )
    ids = [i for n in chosen.names for i in (registry.ids(n) if n in registry.topics() else [n])]
    try:
        exercises = [registry.load(i) for i in ids]
    except ValueError as e:
        parser.error(str(e))
    return max(_prove(e, chosen) for e in exercises)


def _prove(exercise: Exercise, chosen: argparse.Namespace) -> int:
    console, start = Console(), time.monotonic()
    console.rule(f"[bold]{exercise.id}")
    seeds = benches(exercise, chosen.seeds)
    made = list(track(seeds, "cases", chosen.seeds, console=console, transient=True))
    faults = _faults(exercise, made, chosen.answers)
    called, tried, stale = _tried(exercise, made, chosen, console)
    known = reasons(exercise)
    left = [t for t in tried if t.verdict != "killed" and t.key not in known]
    _ranges(console, drawn(exercise, made))
    for fault in faults:
        console.print(f"[red]✗[/red] {fault}", highlight=False, markup=True)
    _survivors(console, exercise, left, chosen.toml)
    for key in stale:
        said = f"{reasons_file(exercise).name} names a mutant that is killed or gone: {key}"
        console.print(said, markup=False)
    n = Counter(t.verdict for t in tried)
    console.print(
        f"{len(tried)} mutants of {', '.join(called)}: {n['killed']} killed,"
        f" {n['depends on the seed']} depend on the seed, {n['survives']} survive;"
        f" {len(tried) - n['killed'] - len(left)} of these have a reason."
        f" {chosen.seeds} seeds, {time.monotonic() - start:.0f} s.",
        markup=False,
    )
    return int(bool(faults or left or stale))


def _tried(
    exercise: Exercise, made: list[Bench], chosen: argparse.Namespace, console: Console
) -> tuple[list[str], list[Tried], list[str]]:
    """The programs that were mutated, what became of the mutants, and the keys of reasons that
    nothing needs any more. What is refused as it stands, or not asked for, keeps its reasons
    unmutated."""
    right = programs(exercise, chosen.answers)
    found = accepted(right, made)
    left_out = {p.called for p in right} - {p.called for p in found}
    if chosen.misconceptions:
        found += programs(exercise, chosen.answers, True)[len(right) :]
    else:
        left_out |= {m.slug for m in exercise.misconceptions}
    mutants = all_mutants(found, arguments(made[0]))[:: chosen.every]
    known = reasons(exercise)
    trial = try_all(mutants, made, known)
    tried = list(track(trial, "mutants", len(mutants), console=console, transient=True))
    needed = {t.key for t in tried if t.verdict != "killed"}
    gone = set(known) - needed if chosen.every == 1 else set()
    stale = sorted(key for key in gone if key.partition(":")[0] not in left_out)
    return [p.called for p in found], tried, stale


def _faults(exercise: Exercise, made: list[Bench], folder: Path) -> list[str]:
    """Right answers refused, misconceptions not named, standing wrong answers let through, each
    with its seed."""
    found = []
    for bench in made:
        found += [misconceptions(bench), separated(bench)]
        found += [
            right(bench, p.names(p.source), f"the right answer {p.called}")
            for p in answers(exercise, folder)
        ]
    found += [standing(bench) for bench in made[:2]]
    return [f for f in found if f]


def _survivors(console: Console, exercise: Exercise, left: list[Tried], toml: bool) -> None:
    if toml:
        for t in left:
            console.print(f"    {_quoted(t.key)},", markup=False, soft_wrap=True, highlight=False)
        return
    if not left:
        return
    table = Table("mutant", "killed by", title="to be killed by a case, or to get a reason")
    for t in sorted(left, key=lambda t: t.killed):
        table.add_row(Text(t.key), f"{t.killed} of {t.seeds} seeds")
    console.print(table)
    console.print(
        f"A reason is written down in {reasons_file(exercise)}, under [{exercise.slug}]:"
        " \"the reason\" = ['the mutant', 'another mutant']; --toml prints the mutants so.",
        markup=False,
    )


def _quoted(key: str) -> str:
    return f"'{key}'" if "'" not in key else f"'''{key}'''"


def _ranges(console: Console, found: list[Drawn]) -> None:
    table = Table("argument", "at every seed", "at some seed", "the task names", title="drawn")
    for d in found:
        table.add_row(d.name, d.always, d.sometimes, d.named, style="red" if d.short else None)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
