"""Finished runs become checkpoints of the package only if their seeds were trained alike."""

import json
from dataclasses import asdict

import pytest
import torch

from twophase.models import checkpoints, collect, corpus, family
from twophase.models.config import Config
from twophase.models.recipe import Recipe
from twophase.models.transformer import Transformer

PACKAGE = checkpoints.FOLDER.parents[1]
TINY = Config(L=1, D=8, F=12, N=2, K=1, H=4, V=19)


def run(folder, name, seed, **changes):
    torch.manual_seed(seed)
    details = {
        "recipe": asdict(Recipe(seed=seed)),
        "corpus_sha256": corpus.digest(),
        "n_tokens": Recipe.n_tokens,
        "held_out_bits_per_byte": 2.0 + seed / 10,
        "train_bits_per_byte": [8.0, 2.0],
        "training_s": 10 * seed,
        "device": "CPU, 1 thread",
        **changes,
    }
    checkpoints.save(Transformer(TINY), name, details, folder / f"seed{seed}")


@pytest.fixture(autouse=True)
def two_models(monkeypatch):
    monkeypatch.setattr(collect, "TRAINED", {"a": TINY, "b": TINY})
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


def longer(folder, name, seed, n_tokens=50_000, **changes):
    recipe = asdict(Recipe(seed=seed, n_tokens=n_tokens))
    run(folder, name, seed, n_tokens=n_tokens, recipe=recipe, **changes)


def known(out):
    runs = collect.losses(checkpoints.card("a", out))
    return [(r["n_tokens"], r["seed"], r["held_out_bits_per_byte"]) for r in runs]


def test_losses_on_another_budget_stand_beside_those_of_the_weights(tmp_path):
    run(tmp_path, "a", 1)
    collect.collect(tmp_path, tmp_path / "out")
    weights = (tmp_path / "out" / "a.safetensors").read_bytes()
    longer(tmp_path / "more", "a", 1, held_out_bits_per_byte=1.5)
    longer(tmp_path / "more", "a", 2, held_out_bits_per_byte=1.6)
    for _ in range(2):  # a run that is added again is there once
        assert collect.add_losses(tmp_path / "more", tmp_path / "out") == ["a"]
        n = Recipe.n_tokens
        assert known(tmp_path / "out") == [(50_000, 1, 1.5), (50_000, 2, 1.6), (n, 1, 2.1)]
    assert (tmp_path / "out" / "a.safetensors").read_bytes() == weights


def test_weights_on_another_budget_keep_the_losses_of_those_that_they_replace(
    tmp_path, monkeypatch
):
    for seed in (1, 2):
        run(tmp_path, "a", seed)
        longer(tmp_path / "more", "a", seed)
    collect.collect(tmp_path, tmp_path / "out")
    before = known(tmp_path / "out")
    monkeypatch.setattr(Recipe, "n_tokens", 50_000)
    for _ in range(2):
        collect.collect(tmp_path / "more", tmp_path / "out")
        assert known(tmp_path / "out") == [(50_000, 1, 2.1), (50_000, 2, 2.2), *before]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "a, seed 1, read as many bytes as the weights"),
        ({"corpus_sha256": "other"}, "a, seed 1, was trained with another corpus_sha256"),
    ],
)
def test_losses_of_the_same_budget_or_another_corpus_are_refused(tmp_path, changes, message):
    run(tmp_path, "a", 1)
    collect.collect(tmp_path, tmp_path / "out")
    before = (tmp_path / "out" / "a.json").read_bytes()
    run(tmp_path / "more", "a", 1, **changes)
    with pytest.raises(ValueError, match=message):
        collect.add_losses(tmp_path / "more", tmp_path / "out")
    assert (tmp_path / "out" / "a.json").read_bytes() == before


def test_every_committed_model_was_trained_by_the_one_recipe_and_the_family_on_one_budget():
    cards = {name: checkpoints.card(name) for name in checkpoints.available()}
    assert set(cards) == set(family.TRAINED)
    for name, card in cards.items():
        n_tokens = family.BYTES.get(name, Recipe.n_tokens)
        recipe = Recipe(seed=card["recipe"]["seed"], n_tokens=n_tokens)
        assert card["recipe"] == asdict(recipe)
        assert Config(**card["config"]) == family.TRAINED[name]
        assert [s["seed"] for s in card["seeds"]] == list(family.SEEDS[name])
        assert card["n_params"] == family.TRAINED[name].architecture().n_params()
    assert set(family.BYTES) & set(family.FAMILY) == set()


def test_all_weights_of_the_package_together_stay_below_forty_megabytes():
    assert sum(path.stat().st_size for path in PACKAGE.rglob("*.safetensors")) < 40e6


@pytest.mark.parametrize("name", family.TRAINED)
def test_a_member_s_own_card_is_taken_whatever_its_config_holds(monkeypatch, name):
    monkeypatch.setattr(collect, "TRAINED", family.TRAINED)
    card = checkpoints.card(name)  # windows, sources and patterns are lists here, tuples in Config
    collect._check(name, 1, card, card["recipe"]["n_tokens"])
