"""Whatever a submission's process says, the judge ends in time, raises nothing but AnswerError
inside, and awards nothing."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from draws import draws
from hostile.child import LIMITS, NonsenseZygote, Say, nonsense, scripts
from hostile.course import EXERCISES, RIGHT, TOPIC, cells, dump, release
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE_S

from twophase.checks.compare import EXACT, Tolerance, describe, difference
from twophase.checks.exercise import Exercise
from twophase.checks.judge import Bench
from twophase.grading.files.notebook import parse
from twophase.grading.judge.benches import Benches
from twophase.grading.judge.one_submission import SubmissionJudge
from twophase.grading.judge.remote_answer import RemoteAnswer
from twophase.grading.results.grade import Grade
from twophase.grading.sandbox.zygote_handle import Zygote
from twophase.protocol import AnswerError, encode
from twophase.protocol import wire as w
from twophase.protocol.arrays import DTYPES

QUICK: dict[str, Exercise] = {i: replace(e, time_limit_s=0.05) for i, e in EXERCISES.items()}
BENCHES = {i: Bench(e, 1) for i, e in QUICK.items()}
few = draws(20)


@pytest.mark.parametrize("exercise_id", QUICK)
@given(script=scripts)
@few
def test_an_answer_of_nonsense_is_judged_in_time_and_earns_nothing(
    exercise_id: str, script: list[list[Say]]
) -> None:
    began = time.monotonic()
    with nonsense(script) as session:
        verdict = BENCHES[exercise_id].judge(RemoteAnswer(session))
    assert not verdict.right
    assert verdict.points == 0
    assert time.monotonic() - began < PATIENCE_S


@given(script=scripts)
@few
def test_a_cell_answered_with_nonsense_is_an_answer_error_or_a_report(
    script: list[list[Say]],
) -> None:
    kinds: list[str] = []
    with nonsense(script) as session:
        for _ in range(3):
            try:
                ran = session.run_cell("1", 0.1)
            except AnswerError as e:
                kinds.append(e.kind)
                assert session.broken is not None
            else:
                assert type(ran.error) is type(ran.output) is str
    assert set(kinds) <= {"timeout", "died", "protocol"}


def grade(zygote: NonsenseZygote) -> Grade:
    handed_out = replace(release(), exercises=QUICK)
    work = parse(dump(cells(dict(RIGHT))))
    return SubmissionJudge(cast(Zygote, zygote), handed_out, Benches(), LIMITS, 1, work).grade()


@given(said=st.lists(scripts, max_size=6), polite=st.booleans())
@draws(8)
def test_a_judge_among_processes_of_nonsense_ends_in_time_and_awards_nothing(
    said: list[Any], polite: bool
) -> None:
    began = time.monotonic()
    zygote = NonsenseZygote(said, polite)
    seen = grade(zygote)
    assert {q.verdict.exercise_id for q in seen.questions} == set(EXERCISES)
    assert sum(q.verdict.points for q in seen.questions) == 0
    assert len(zygote.children) <= LIMITS.forks + 2 * len(EXERCISES)
    assert time.monotonic() - began < PATIENCE_S
    for child in zygote.children:
        child.join()


def test_a_child_that_does_what_the_worker_does_is_believed() -> None:
    """The other direction: these tests would not see a judge that refuses everything."""
    cases = QUICK[f"{TOPIC}-bytes"].make_cases(1)
    asked = [*cases, cases[-1], cases[0]]  # who is right is asked the last and the first once more
    right = [[Say(w.VALUE, body=encode(2 * c.args[0] * c.args[1]))] for c in asked]
    with nonsense(right) as session:
        assert BENCHES[f"{TOPIC}-bytes"].judge(RemoteAnswer(session)).right
    one_off = [*right[:-1], [Say(w.VALUE, body=encode(1))]]
    with nonsense(one_off) as session:
        assert not BENCHES[f"{TOPIC}-bytes"].judge(RemoteAnswer(session)).right


@pytest.mark.parametrize("kind", [w.VALUE, w.CALLBACK, w.ERROR])
def test_a_flood_ends_at_the_deadline(kind: bytes) -> None:
    body = {w.VALUE: encode(1), w.CALLBACK: w.pack_call(1, [1], {}), w.ERROR: b""}[kind]
    flood = [[Say(kind, body=body)] * 20_000] * 3
    began = time.monotonic()
    with nonsense(flood) as session:
        verdict = BENCHES[f"{TOPIC}-sampler"].judge(RemoteAnswer(session))
    assert verdict.points == 0
    assert time.monotonic() - began < PATIENCE_S


def _arrays() -> list[Any]:
    """One array and one tensor of every dtype that can cross, in shapes that agree and shapes that
    do not."""
    made: list[Any] = []
    for name in DTYPES:
        made += [torch.ones(shape).to(getattr(torch, name)) for shape in ((), (2,), (2, 0))]
        if name != "bfloat16":
            made += [np.ones(shape).astype(name) for shape in ((), (2,), (2, 0))]
    return made


ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    10**1200,
    0.5,
    float("nan"),
    float("inf"),
    "",
    "\ud800",
    b"\0",
    [],
    [1],
    (1, 2),
    {},
    {"a": 1},
]
ODD += [
    {1: 2, 0: 3},
    {None: None},
    {(1, 2): 3},
    {1, 2},
    [[[]]],
    [{"a": [0.0]}],
    np.float32("nan"),
    np.bool_(True),
    {float("nan"): 1},
]


@pytest.mark.parametrize(
    "tolerance", [EXACT, Tolerance(rtol=1e-6), Tolerance(rtol=1e9, atol=1e300, dtype=True)]
)
def test_any_two_values_that_can_cross_can_be_compared(tolerance: Tolerance) -> None:
    every = [*ODD, *_arrays()]
    for observed in every:
        for expected in every:
            said = difference(observed, expected, tolerance)
            assert said is None or "\n" not in said
        assert len(describe(observed)) < 2_000
