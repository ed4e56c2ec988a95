"""An audit finds a result that would not come again, and an answer that is right only for the cases
it was graded on."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from grading_run_tools import course, lines, run, write
from hostile.course import EXERCISES, RIGHT, TOPIC, cells, dump
from hostile.worker import zygote
from rich.console import Console

from twophase.cli import auditing
from twophase.grading.errors import CannotWrite
from twophase.grading.intake.submissions import find
from twophase.grading.results.reader import Index
from twophase.grading.results.records import Record
from twophase.grading.run import audit
from twophase.grading.run import folder as runs

CASES = [c.args for c in EXERCISES[f"{TOPIC}-bytes"].make_cases(1)]
TABLE = (
    f"def bytes_of(n, w):\n    return 2 * n * w if (n, w) in {[tuple(a) for a in CASES]!r} else 0"
)


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Right, wrong, unreadable, with a time-out of its own; and a table of the answers to the cases
    of seed 1."""
    folder = tmp_path_factory.mktemp("class")
    answers = {
        "right": RIGHT["bytes"],
        "wrong": "def bytes_of(n_tokens, width):\n    return n_tokens * width",
        "exits": "import os; os._exit(1)",
        "table": TABLE,
    }
    files = {
        f"{name}.ipynb": dump(cells(RIGHT | {"bytes": source})) for name, source in answers.items()
    }
    write(folder, files | {"none.ipynb": b"{"})
    run(folder, folder / "out")
    return folder, folder / "out"


def audited(folder: Path, out: Path) -> dict[tuple[str, bool], Sequence[audit.Difference]]:
    """What differs, by file and whether the seed was the same."""
    index = Index(out / "results.jsonl")
    chosen = audit.choose(find(folder), course(), index, 1.0)
    return {
        (a.file, a.same_seed): a.differences
        for a in audit.audit(chosen, course(), index, 1, zygote())
    }


def changed(folder: Path, record: Record) -> Path:
    """The same results, but for this record."""
    folder.mkdir()
    (folder / "results.jsonl").write_text(json.dumps(record) + "\n")
    return folder


def test_the_same_seed_gives_all_again_and_another_tells_the_table_from_the_formula(
    graded: tuple[Path, Path],
) -> None:
    before = (graded[1] / "results.jsonl").read_bytes()
    points = {r["file"]: r["points"] for r in lines(graded[1])}
    assert (points["right.ipynb"], points["table.ipynb"]) == (8, 8)
    found = audited(*graded)
    assert len(found) == 10
    table = found.pop(("table.ipynb", False))
    assert [(d.where, d.before, d.after) for d in table] == [
        (f"questions[{TOPIC}-bytes].status", "right", "wrong")
    ]
    assert not any(found.values()), found
    assert (graded[1] / "results.jsonl").read_bytes() == before


def test_a_result_that_does_not_come_again_is_found_with_its_place(
    graded: tuple[Path, Path], tmp_path: Path
) -> None:
    record = next(r for r in lines(graded[1]) if r["file"] == "wrong.ipynb")
    record["questions"][0] |= {"status": "right", "points": 2.0}
    record["points"] += 2.0
    record["varies"], record["environment"], record["confined_by"] = (
        {},
        {"python": "2.7"},
        ["nothing"],
    )
    found = audited(graded[0], changed(tmp_path / "out", record))
    assert {d.where for d in found["wrong.ipynb", True]} == {
        "points",
        f"questions[{TOPIC}-bytes].status",
        f"questions[{TOPIC}-bytes].points",
    }


def test_only_what_was_graded_under_these_conditions_is_audited(graded: tuple[Path, Path]) -> None:
    index = Index(graded[1] / "results.jsonl")
    with pytest.raises(ValueError, match="nothing to audit"):
        audit.choose(find(graded[0]), course(seed=2), index, 1.0)


def test_the_share_is_chosen_by_name_the_same_each_time(graded: tuple[Path, Path]) -> None:
    index = Index(graded[1] / "results.jsonl")
    shares = [
        {s.name for s in audit.choose(find(graded[0]), course(), index, x)}
        for x in (0.0, 0.3, 0.6, 1.0)
    ]
    assert len(shares[0]) == 1
    assert shares[1] <= shares[2] <= shares[3]
    assert len(shares[3]) == 5


@pytest.mark.parametrize("leave_out_table", [True, False])
def test_the_command_writes_each_grading_down_and_says_whether_all_are_equal(
    graded: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    leave_out_table: bool,
) -> None:
    folder, out = graded
    in_here = runs.grade_tasks
    monkeypatch.setattr(
        audit, "grade_tasks", lambda tasks, one, workers, z: in_here(tasks, one, workers, zygote())
    )
    chosen = [s for s in find(folder) if s.name != "table.ipynb" or not leave_out_table]
    console = Console(record=True, width=200)
    code = auditing.audit(chosen, course(), out, 1, 1.0, console)
    said = console.export_text()
    written = [json.loads(line) for line in (out / "audit.jsonl").read_text().splitlines()]
    assert len(written) == 2 * len(chosen)
    assert [w["file"] for w in written if not w["equal"]] == (
        [] if leave_out_table else ["table.ipynb"]
    )
    assert code == (0 if leave_out_table else 1)
    assert ("All are equal." in said) == leave_out_table
    assert ("1 get other verdicts with another seed" in said) != leave_out_table


def test_a_full_disk_leaves_what_the_audit_before_wrote(
    graded: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = graded[0], changed(tmp_path / "out", lines(graded[1])[0])
    (out / "audit.jsonl").write_text("before\n")

    def full(*_: object) -> Iterator[audit.Audited]:
        yield audit.Audited("a.ipynb", "", True, ())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(auditing, "grade_again", full)
    chosen = [s for s in find(folder) if s.name == lines(out)[0]["file"]]
    with pytest.raises(CannotWrite, match=r"audit\.jsonl cannot be written: No space left"):
        auditing.audit(chosen, course(), out, 1, 1.0, Console(quiet=True))
    assert (out / "audit.jsonl").read_text() == "before\n"
    assert sorted(p.name for p in out.iterdir()) == ["audit.jsonl", "results.jsonl"]
