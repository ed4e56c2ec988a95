"""The committed table of healing came from the committed weights, and its losses teach what they
say."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch.nn import functional

from twophase.kernels.pruning import hidden_loss, logits_loss
from twophase.models import checkpoints, corpus, findings
from twophase.models.optimizer import MuonAdamW
from twophase.models.pruning import healing, teaching

TOKENS = torch.from_numpy(corpus.load("train")[:258].astype("int64")).view(2, 129)


@pytest.fixture(scope="module")
def room() -> healing.Classroom:
    return healing.Classroom()


def test_the_table_has_every_way_at_equal_tokens_with_as_many_seeds(room) -> None:
    found = healing.result()
    assert found["params"] == room.half.n_params
    assert found["layers"] == room.kept
    ways: dict[tuple[str, str], set[int]] = {}
    for run in found["runs"]:
        ways.setdefault((run["start"], run["way"]), set()).add(run["seed"])
        assert [tokens for tokens, _ in run["curve"]] == [
            tokens for tokens, _ in found["runs"][0]["curve"]
        ]
        assert run["curve"][-1][1] < run["curve"][0][1]
    assert set(ways) == set(healing.WAYS)
    assert len({frozenset(seeds) for seeds in ways.values()}) == 1
    seeds = next(iter(ways.values()))
    assert len(seeds) >= 3
    for layers, channels in healing.OTHER_CUTS:
        cuts = [c for c in found["other_cuts"] if c["channels"] == channels]
        assert {c["seed"] for c in cuts} == seeds
        assert all(len(c["layers"]) == layers for c in cuts)
        assert all(c["curve"][-1][1] < c["curve"][0][1] for c in cuts)
    assert {run["seed"] for run in found["whole"]} == seeds
    assert {run["curve"][0][1] for run in found["whole"]} == {found["source_bits_per_byte"]}


def test_a_run_that_was_broken_off_goes_on_where_it_was(room, tmp_path, monkeypatch) -> None:
    whole = json.loads(healing.RESULT.read_text(encoding="utf-8"))
    half = {**whole, "runs": whole["runs"][:-1], "whole": []}
    path = tmp_path / "healed.json"
    findings.write(half, path)
    made = []
    curve = whole["runs"][-1]["curve"]
    monkeypatch.setattr(healing.Classroom, "taught", lambda *args: made.append(args) or curve)
    monkeypatch.setattr(healing, "Classroom", lambda: room)
    facts = {name: value for name, value in whole.items() if name not in healing.LISTS}
    monkeypatch.setattr(healing, "facts", lambda *args: facts)
    healing.run(3, path)
    assert len(made) == 1 + 3
    again = json.loads(path.read_text(encoding="utf-8"))
    assert again["runs"] == whole["runs"]
    assert again["other_cuts"] == whole["other_cuts"]
    assert len(again["whole"]) == 3
    facts["torch"] = "another"  # then nothing of it can be gone on with
    healing.run(1, path)
    assert len(made) == 4 + len(healing.WAYS) + len(healing.OTHER_CUTS) + 1


def test_a_table_of_other_weights_is_refused(tmp_path) -> None:
    text = healing.RESULT.read_text(encoding="utf-8")
    sha = healing.result()["source_sha256"]
    (tmp_path / "healed.json").write_text(text.replace(sha, "0" * 64))
    with pytest.raises(ValueError, match="made from other weights of gqa: run"):
        healing.result(tmp_path / "healed.json")


def test_half_a_model_is_half_a_model(room) -> None:
    assert room.half.config.L == healing.LAYERS
    assert room.half.config.F == healing.CHANNELS
    assert room.half.n_params < 0.55 * room.teacher.n_params


def test_lessons_are_the_losses_they_are_named_after(room) -> None:
    half, teacher = room.half, room.teacher
    logits, told = half(TOKENS[:, :-1]), teacher(TOKENS[:, :-1])
    text = functional.cross_entropy(logits.flatten(0, 1), TOKENS[:, 1:].flatten())
    found = {way: teaching.lesson(half, teacher, room.kept, TOKENS, way) for _, way in healing.WAYS}
    assert torch.allclose(found[teaching.TEXT], text)
    assert torch.allclose(found[teaching.LOGITS], logits_loss(logits, told))
    with teaching.streams(half, [0, 1, 2]) as own, teaching.streams(teacher, room.kept) as taught:
        half(TOKENS[:, :-1]), teacher(TOKENS[:, :-1])
    both = logits_loss(logits, told) + hidden_loss(own, taught)
    assert torch.allclose(found[teaching.BOTH], both)
    assert not teacher.layers[0]._forward_hooks


@pytest.mark.parametrize("way", [teaching.TEXT, teaching.LOGITS, teaching.BOTH])
def test_a_few_steps_of_each_lesson_lower_it(room, way) -> None:
    student = copy.deepcopy(room.half).requires_grad_(True)
    optimizer = MuonAdamW(student, 6e-3, 3e-3, 0.1)
    losses = []
    for _ in range(4):
        loss = teaching.lesson(student, room.teacher, room.kept, TOKENS, way)
        optimizer.zero_grad(student)
        loss.backward()
        optimizer.step(1.0)
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    before = checkpoints.load("gqa").state_dict()
    assert all(torch.equal(p, before[name]) for name, p in room.teacher.state_dict().items())
