"""Finished runs become checkpoints of the package only if their seeds were trained alike."""

import json
from dataclasses import asdict

import pytest
import torch

from twophase.models import checkpoints, collect, corpus, family
from twophase.models.config import Config
from twophase.models.recipe import Recipe
from twophase.models.transformer import Transformer

TINY = Config(L=1, D=8, F=12, N=2, K=1, H=4, V=19)


def run(folder, name, seed, **changes):
    torch.manual_seed(seed)
    details = {
        "recipe": asdict(Recipe(seed=seed)),
        "corpus_sha256": corpus.digest(),
        "held_out_bits_per_byte": 2.0 + seed / 10,
        "train_bits_per_byte": [8.0, 2.0],
        "training_s": 10 * seed,
        "device": "CPU, 1 thread",
        **changes,
    }
    checkpoints.save(Transformer(TINY), name, details, folder / f"seed{seed}")


@pytest.fixture(autouse=True)
def two_models(monkeypatch):
    monkeypatch.setattr(collect, "FAMILY", {"a": TINY, "b": TINY})
    monkeypatch.setattr(collect, "SEEDS", {"a": (1, 2), "b": (1,)})


def test_the_first_seed_is_taken_and_the_losses_of_all_are_kept(tmp_path):
    run(tmp_path, "a", 1)
    run(tmp_path, "a", 2)
    assert collect.collect(tmp_path, tmp_path / "out") == ["b, seed 1"]
    card = checkpoints.card("a", tmp_path / "out")
    assert [s["held_out_bits_per_byte"] for s in card["seeds"]] == [2.1, 2.2]
    taken = checkpoints.load("a", folder=tmp_path / "out").state_dict()
    first = checkpoints.load("a", folder=tmp_path / "seed1").state_dict()
    assert all(torch.equal(taken[key], first[key]) for key in first)
    assert checkpoints.available(tmp_path / "out") == ["a"]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "changes",
    [
        {"corpus_sha256": "other"},
        {"recipe": asdict(Recipe(seed=2, n_tokens=60_000))},
        {"config": {}},
    ],
)
def test_a_run_that_is_not_the_family_s_is_refused(tmp_path, changes, seed):
    run(tmp_path, "a", 1)
    run(tmp_path, "a", 2)
    path = tmp_path / f"seed{seed}" / "a.json"
    card = json.loads(path.read_text())
    more = {**card["config"], "norm_eps": 1e-5} if "config" in changes else None
    path.write_text(json.dumps({**card, **changes, **({"config": more} if more else {})}))
    with pytest.raises(
        ValueError, match=rf"a, seed {seed}, was trained with another (config|recipe|corpus_sha256)"
    ):
        collect.collect(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out" / "a.json").exists()


def test_every_committed_member_was_trained_by_the_one_recipe_on_one_budget():
    cards = {
        name: checkpoints.card(name) for name in checkpoints.available() if name in family.FAMILY
    }
    recipes = {json.dumps({**card["recipe"], "seed": 0}, sort_keys=True) for card in cards.values()}
    assert set(cards) == set(family.FAMILY)
    assert len(recipes) == 1
    for name, card in cards.items():
        assert Config(**card["config"]) == family.FAMILY[name]
        assert [s["seed"] for s in card["seeds"]] == list(family.SEEDS[name])
        assert card["n_params"] == family.FAMILY[name].architecture().n_params()


def test_all_checkpoints_together_stay_below_thirty_megabytes():
    assert sum(path.stat().st_size for path in checkpoints.FOLDER.iterdir()) < 30e6
