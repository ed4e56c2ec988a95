"""The mutation prover: what it changes in a program, what it tells of the outcome."""

from __future__ import annotations

from pathlib import Path

import pytest
from exercise_tools import ANSWERS

from twophase.checks import registry
from twophase.checks.judge import Bench
from twophase.checks.prove.__main__ import main
from twophase.checks.prove.limits import TooLong, cpu_limit
from twophase.checks.prove.mutate import mutants
from twophase.checks.prove.ranges import drawn
from twophase.checks.prove.sources import as_cell, own
from twophase.checks.prove.trial import (
    ENDLESS,
    Tried,
    accepted,
    all_mutants,
    failed,
    programs,
    try_all,
)

SOURCE = '''
def largest(memory: int, used: int, each: int) -> int:
    """The largest whole number that fits."""
    if used < memory:
        return max(0, (memory - used) // each)
    return 0

def total(values):
    seen = []
    for v in values[1:]:
        seen.append(v)
    return float(sum(seen, 0.5))
'''
CHANGES = [
    "largest: used < memory -> used <= memory",
    "largest: return max(0, (memory - used) // each) -> return (memory - used) // each",
    "largest: max(0, (memory - used) // each) -> min(0, (memory - used) // each)",
    "largest: memory - used -> memory + used",
    "largest: (memory - used) // each -> memory // each",
    "largest: (memory - used) // each -> (memory - used) / each",
    "largest: if used < memory: pass -> if True: pass",
    "largest: return 0 -> return 1",
    "largest: each -> each % 2048, or its first 256 entries",
    "total: seen = [] -> seen = globals().setdefault('kept seen', [])",
    "total: values[1:] -> values[2:]",
    "total: values[1:] -> values[:]",
    "total: seen.append(v) -> pass",
    "total: return float(sum(seen, 0.5)) -> return sum(seen, 0.5)",
    "total: float(sum(seen, 0.5)) -> float(sum(seen))",
    "total: sum(seen, 0.5) -> sum(seen, 1.0)",
]


def test_a_program_is_mutated_in_every_way_that_is_named() -> None:
    made = mutants(SOURCE, small={"each"})
    keys = [m.key for m in made]
    assert set(CHANGES) <= set(keys)
    assert len(set(keys)) == len(keys)
    assert len({m.source for m in made}) == len(made)
    assert all("def largest(memory, used, each):" in m.source for m in made)


def test_a_mutants_key_survives_edits_elsewhere() -> None:
    moved = "import math\n\n" + SOURCE.replace("fits", "fits beside the rest").replace(
        "return 0\n", "x = 3\n    return 0\n"
    )
    assert set(CHANGES) - {"largest: each -> each % 2048, or its first 256 entries"} <= {
        m.key for m in mutants(moved)
    }


def test_what_is_kept_between_calls_is_kept() -> None:
    kept = next(m for m in mutants(SOURCE) if "globals()" in m.key)
    names = as_cell(kept.source)
    assert (names["total"]([9, 1]), names["total"]([9, 1])) == (1.5, 2.5)


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(registry.load("kv_cache-max_batch"), 0)


def test_a_mutant_that_never_ends_is_killed_and_one_that_is_right_is_not(bench: Bench) -> None:
    program = own(bench.exercise, "reference", bench.exercise.reference)
    assert program is not None
    assert failed(program, program.source, bench) is None
    never = "def reference(*args):\n    while True: pass"
    assert failed(program, never, bench) == ENDLESS
    assert failed(program, "def reference(:", bench) == 0
    assert failed(program, "def reference(*args):\n    return [0] * 10**12", bench) == 0


def test_every_program_that_is_mutated_is_right_before(bench: Bench) -> None:
    found = programs(bench.exercise, ANSWERS, with_misconceptions=True)
    right = [p.called for p in accepted(found, [bench])]
    assert right == ["reference", "by_division", "by_search"]
    assert len(found) == 3 + len(bench.exercise.misconceptions)


def test_a_verdict_tells_seeds_that_kill_from_seeds_that_do_not() -> None:
    assert [Tried("", n, 20).verdict for n in (0, 1, 19, 20)] == [
        "survives",
        "depends on the seed",
        "depends on the seed",
        "killed",
    ]


def test_most_mutants_of_a_formula_are_killed(bench: Bench) -> None:
    (reference, *_) = programs(bench.exercise, ANSWERS)
    tried = list(try_all(all_mutants([reference]), [bench]))
    assert len(tried) >= 15
    assert all(t.verdict == "killed" for t in tried), [t for t in tried if t.verdict != "killed"]


def test_the_values_drawn_are_those_that_the_cases_hand_over(bench: Bench) -> None:
    found = {d.name: d for d in drawn(bench.exercise, [bench])}
    assert set(found) == {"memory_bytes", "weight_bytes", "kv_bytes_per_token", "n_tokens"}
    tokens = [case.args[3] for case in bench.cases]
    assert found["n_tokens"].always == f"{min(tokens):.6g} … {max(tokens):.6g}"
    caches = Bench(registry.load("kv_cache-cache"), 0)
    assert "append.k.dtype" in {d.name for d in drawn(caches.exercise, [caches])}


def test_the_command_names_the_exercise_it_does_not_know(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["kv_cache-max_bach"])
    assert "did you mean 'kv_cache-max_batch'?" in capsys.readouterr().err


def test_a_missing_folder_of_right_answers_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From another folder it would mutate the reference alone, and call all reasons stale."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["kv_cache-max_batch"])
    said = capsys.readouterr().err
    assert "there is no folder tests" in said
    assert "--answers" in said


def test_the_command_lists_what_it_tried(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main(["kv_cache-max_batch", "--seeds", "2", "--every", "9", "--answers", str(tmp_path)])
    said = capsys.readouterr().out
    assert "mutants of reference" in said
    assert "kv_bytes_per_token" in said


class Endless:
    def __del__(self) -> None:
        while True:
            pass


def endless() -> None:
    Endless()  # gone at once, and what is raised in it is forgotten
    while True:
        pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_limit_that_a_finalizer_swallows_comes_again() -> None:
    with pytest.raises(TooLong), cpu_limit(0.02):
        endless()
