"""What must hold after each hostile submission: its exact score, an unharmed neighbor, and nothing left behind."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from hostile.attack import LEFT_BEHIND, ROOT, Hostile
from hostile.course import EXERCISES, RIGHT, TOPIC, cells, dump
from hostile.worker import grade, zygote

from twophase.grading.results.grade import Grade
from twophase.grading.sandbox import landlock
from twophase.grading.sandbox.what_confines import confined_by

ALL_POINTS = sum(e.points for e in EXERCISES.values())
PLACES = (
    "/tmp",
    "/var/tmp",
    "/dev/shm",
    "/dev/mqueue",
    "/run",
    "/usr/local",
    "/etc",
    "/",
    str(Path.home()),
    str(ROOT),
)


def points(seen: Grade) -> float:
    return sum(q.verdict.points for q in seen.questions)


def skip_unless_confined(attack: Hostile) -> None:
    """Skip what only a feature of the kernel withstands, where it is not there."""
    versions = {"tcp": 4, "signals": 6}  # what Landlock learned, and when
    if attack.needs in versions:
        there = landlock.abi() >= versions[attack.needs]
    else:
        there = any(label.startswith(attack.needs) for label in confined_by())
    if not there:
        pytest.skip(f"nothing here confines it by {attack.needs}")


def expect_the_exact_score(attack: Hostile) -> None:
    """It loses what it broke and nothing else; then a neighbor has full marks, and nothing is left."""
    skip_unless_confined(attack)
    seen = grade(attack.data)
    lost = {
        q.verdict.exercise_id.removeprefix(f"{TOPIC}-")
        for q in seen.questions
        if not q.verdict.right
    }
    assert lost == attack.lost, [
        (q.verdict.exercise_id, q.verdict.message, q.cell.error) for q in seen.questions
    ]
    assert points(seen) == ALL_POINTS - sum(
        EXERCISES[f"{TOPIC}-{slug}"].points for slug in attack.lost
    )
    assert not attack.flag or attack.flag in {f.name for f in seen.flags}
    expect_nothing_left()
    assert points(grade(_clean())) == ALL_POINTS, "the next submission suffers"


def expect_nothing_gained(attack: Hostile) -> None:
    """The same attack in an untouched notebook earns nothing."""
    skip_unless_confined(attack)
    assert attack.empty is not None
    seen = grade(attack.empty)
    assert points(seen) == 0, [(q.verdict.exercise_id, q.verdict.status) for q in seen.questions]
    expect_nothing_left()


@cache
def _clean() -> bytes:
    return dump(cells(dict(RIGHT)))


def expect_nothing_left() -> None:
    """No process below the zygote, no file in any place that attacks write to, nothing in the kernel's own stores."""
    if pid := zygote().pid:
        assert Path(f"/proc/{pid}/task/{pid}/children").read_text() == ""
    for place in PLACES:
        left = [
            n for n in (os.listdir(place) if os.access(place, os.R_OK) else []) if LEFT_BEHIND in n
        ]
        assert not left, f"{place} has {left}"
    for kind in ("shm", "msg", "sem"):
        table = Path(f"/proc/sysvipc/{kind}")
        assert not table.exists() or str(0x7707) not in table.read_text().split(), (
            f"{kind} of System V"
        )
    assert LEFT_BEHIND not in Path("/proc/net/unix").read_text(errors="replace")
