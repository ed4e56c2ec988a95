"""Training on a card: the step of the CPU, and a run that ends, goes on and leaves a card."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from device_tools import CARD, needs_a_card

from twophase.models import checkpoints, corpus, train
from twophase.models.family import FAMILY
from twophase.models.generate import complete
from twophase.models.objective import training_loss
from twophase.models.recipe import Recipe
from twophase.models.trainer import Trainer

pytestmark = needs_a_card
WORDS = b"def class return import for while if else lambda yield self path lines".split()


def data(n: int = 40_000) -> np.ndarray:
    """A text of words: the corpus need not be installed where a card is."""
    words = random.Random(1).choices(WORDS, k=n // 4)
    return np.frombuffer(b" ".join(words), dtype=np.uint8)[:n].copy()


@pytest.mark.parametrize("name", ["gqa", "moe", "ssm_attention"])
def test_a_loss_and_its_gradient_are_those_of_the_cpu(name: str) -> None:
    tokens = torch.from_numpy(data(2 * 65).reshape(2, 65).astype(np.int64))
    found = []
    for device in ("cpu", CARD):
        model = checkpoints.load(name, device=device).requires_grad_()
        loss, aux = training_loss(model, tokens.to(device), 3)
        (loss + 0.01 * aux).backward()
        assert {p.grad.device.type for p in model.parameters() if p.grad is not None} == {
            torch.device(device).type
        }
        grads = {key: p.grad.cpu() for key, p in model.named_parameters() if p.grad is not None}
        found.append((float(loss.detach()), grads))
    (loss, grads), (on_card, grads_on_card) = found
    assert grads.keys() == grads_on_card.keys()
    assert on_card == pytest.approx(loss, rel=1e-4)
    for key, grad in grads.items():
        # fp32 sums of a few thousand terms in another order, against the largest of each
        bound = 1e-3 * float(grad.abs().max()) + 1e-7
        torch.testing.assert_close(grads_on_card[key], grad, rtol=0.0, atol=bound, msg=key)


def test_a_model_that_fills_in_masks_learns_on_the_card_whatever_is_masked_there() -> None:
    """Masks are drawn on the model's own device, others than the CPU's: no loss to compare."""
    tokens = torch.from_numpy(data(2 * 65).reshape(2, 65).astype(np.int64)).to(CARD)
    model = checkpoints.load("diffusion", device=CARD).requires_grad_()
    losses = []
    for seed in (3, 3, 4):
        model.zero_grad()
        loss, _ = training_loss(model, tokens, seed)
        loss.backward()
        losses.append(float(loss.detach()))
        for p in model.parameters():
            assert p.grad is not None
            assert bool(p.grad.isfinite().all())
            assert bool(p.grad.any())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)  # of one seed
    assert losses[2] != pytest.approx(losses[0], rel=1e-4)


@pytest.mark.parametrize("name", ["gqa", "moe"])
def test_a_step_of_the_optimizer_is_nearly_that_of_the_cpu(name: str) -> None:
    config = replace(FAMILY[name], context=64)
    recipe = Recipe(n_tokens=2 * 64 * 2, B=2, warmup_steps=0, autocast=False)
    moves, losses = [], []
    for device in ("cpu", CARD):
        trainer = Trainer(config, recipe, data(), device)
        fresh = {key: p.detach().cpu().clone() for key, p in trainer.model.named_parameters()}
        losses.append(float(trainer.step()))
        moved = {key: p.detach().cpu() for key, p in trainer.model.named_parameters()}
        moves.append((fresh, {key: moved[key] - fresh[key] for key in fresh}))
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    for key, start in moves[0][0].items():
        assert torch.equal(moves[1][0][key], start)  # drawn on the CPU, whatever the device
        one, other = (move[key].flatten().double() for _, move in moves)
        # Muon brings all singular values to one, in bf16: where a gradient is next to nothing, its
        # direction is noise. Adam's first step has the gradient's signs, likewise.
        alike = torch.nn.functional.cosine_similarity(one, other, dim=0)
        assert float(alike) > 0.9, key
        assert float(other.norm()) == pytest.approx(float(one.norm()), rel=0.1), key


@pytest.mark.parametrize("name", ["gqa"])
def test_a_run_ends_goes_on_and_leaves_a_card(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = data()
    monkeypatch.setattr(corpus, "load", lambda split: text[:20_000] if split == "train" else text)
    monkeypatch.setattr(corpus, "digest", lambda: "words")
    monkeypatch.setattr(corpus, "packages", list)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", f"train {name} --device cuda --tokens 20480 --out tmp".split())
    train.main()
    folder = tmp_path / "tmp" / "seed1"
    card = checkpoints.card(name, folder)
    assert card["device"] == torch.cuda.get_device_name()
    assert card["n_tokens"] == 20480
    assert not card["compiled"]
    assert card["train_bits_per_byte"][-1] < card["train_bits_per_byte"][0]
    weights = (folder / f"{name}.safetensors").read_bytes()
    made = checkpoints.load(name, device=CARD, folder=folder)
    assert len(complete(made, list(b"def "), 4).tokens) == 4
    train.main()  # from the last save: nothing is left to do
    assert (folder / f"{name}.safetensors").read_bytes() == weights
    assert "bits per byte on held-out packages" in capsys.readouterr().out


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    config, path = replace(FAMILY["gqa"], context=64), tmp_path / "run.pt"
    recipe = Recipe(n_tokens=4 * 64 * 2, B=2, warmup_steps=2)
    first = Trainer(config, recipe, data(), CARD)
    first.step()
    first.step()
    first.save(path)
    last = float(first.step())
    second = Trainer(config, recipe, data(), CARD)
    second.resume(path)
    assert second.step_count == 2
    assert {p.device.type for p in second.model.parameters()} == {CARD}
    # atomic sums of a backward pass come in any order, in bf16
    assert float(second.step()) == pytest.approx(last, rel=1e-2)
