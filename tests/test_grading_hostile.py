"""A hostile or broken submission loses what it broke and nothing else, gains nothing, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile.course import RIGHT, TOPIC
from hostile.notebooks import CORPUS, UNREADABLE, Hostile
from hostile.worker import grade, zygote

from twophase.grading.notebook import Unreadable, parse


@pytest.mark.parametrize("attack", CORPUS, ids=lambda h: h.name)
def test_an_attack_loses_what_it_broke_and_nothing_else(attack: Hostile) -> None:
    seen = grade(attack.data)
    lost = {q.verdict.exercise_id.removeprefix(f"{TOPIC}-") for q in seen.questions if not q.verdict.right}
    assert lost == attack.lost, [(q.verdict.exercise_id, q.verdict.message) for q in seen.questions]
    assert sum(q.verdict.points for q in seen.questions) == 2 * len(RIGHT) - 2 * len(attack.lost)
    assert not attack.flag or attack.flag in {f.name for f in seen.flags}


@pytest.mark.parametrize(
    "attack", [h for h in CORPUS if "orphans" in h.name or "forks" in h.name], ids=lambda h: h.name
)
def test_no_process_is_left_when_a_submission_is_over(attack: Hostile) -> None:
    grade(attack.data)
    process = zygote()._process
    assert process is not None
    assert Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text() == ""


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_notebook_is_called_unreadable(name: str) -> None:
    with pytest.raises(Unreadable, match="it "):
        parse(UNREADABLE[name])
