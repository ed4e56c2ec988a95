"""Captured steps are the steps that a run takes one by one; on a GPU they are replayed."""

import dataclasses

import numpy as np
import pytest
import torch
from device_tools import needs_a_card

from twophase.models import diffusion
from twophase.models.captured import TABLE, WARM_UP, CapturedSteps
from twophase.models.config import Config
from twophase.models.mixture_of_experts import run_every_expert
from twophase.models.recipe import Recipe, batch
from twophase.models.train import train
from twophase.models.trainer import Trainer
from twophase.models.transformer import Transformer
from twophase.theory.sizes import MixtureOfExperts

TINY = Config(L=2, D=16, F=24, N=4, K=2, H=4, context=16)
EXPERTS = dataclasses.replace(TINY, moe=MixtureOfExperts(E=3, k=2, F=10))
BOTH_WAYS = dataclasses.replace(TINY, causal=False, V=257)
RECIPE = Recipe(n_tokens=30 * 4 * 16, B=4, warmup_steps=3, seed=5, autocast=False)
DATA = np.frombuffer(b"def f(x):\n    return x + 1\n\n" * 20, dtype=np.uint8)


def recorder(seen: list[tuple[torch.Tensor, float]]):
    def update(tokens: torch.Tensor, share: torch.Tensor, hidden: None) -> torch.Tensor:
        seen.append((tokens.clone(), float(share)))
        return tokens.float().mean()

    return update


def test_steps_get_the_windows_and_the_rates_that_a_run_gives_them_one_by_one():
    seen: list[tuple[torch.Tensor, float]] = []
    steps = CapturedSteps(RECIPE, 16, DATA, "cpu", recorder(seen))
    found = steps.run(0, 5) + steps.run(5, 1) + steps.run(6, 24)  # epochs end within
    for step, (tokens, share) in enumerate(seen):
        wanted = batch(DATA, step, RECIPE.B, 16, RECIPE.seed)
        assert torch.equal(tokens, wanted)
        assert share == pytest.approx(RECIPE.lr_share(step, 16), rel=1e-6)
        assert found[step] == pytest.approx(float(wanted.float().mean()))
    assert len(seen) == 30


def test_a_run_of_such_steps_learns_what_a_run_of_single_ones_does():
    """Rates are rounded to fp32 on the device, so not to the last bit."""
    single, captured = (Trainer(TINY, RECIPE, DATA, "cpu") for _ in range(2))
    captured.captured = CapturedSteps(RECIPE, 16, DATA, "cpu", captured._update)
    while single.step_count < single.total_steps:
        single.step()
    captured.steps()
    assert captured.step_count == 30 == len(captured.losses)
    np.testing.assert_allclose(captured.losses, single.losses, rtol=1e-3)


def test_steps_that_run_every_expert_learn_what_steps_that_visit_them_do():
    """On a card they do, so that no step waits for counts; sums come in another order."""
    visiting, all_run = (Trainer(EXPERTS, RECIPE, DATA, "cpu") for _ in range(2))
    run_every_expert(all_run.model)
    for _ in range(10):
        assert float(all_run.step()) == pytest.approx(float(visiting.step()), rel=1e-4)


def test_a_loss_that_is_no_number_is_told_with_its_step():
    steps = CapturedSteps(
        RECIPE,
        16,
        DATA,
        "cpu",
        lambda tokens, share, _: torch.where(share == 1.0, torch.nan, share),
    )
    assert steps.run(0, 2) == pytest.approx([1 / 3, 2 / 3])
    with pytest.raises(ValueError, match=r"the loss is nan at step 2: lower the learning rates"):
        steps.run(2, 3)


@pytest.mark.parametrize("n", [0, TABLE + 1])
def test_more_steps_than_a_table_holds_are_refused(n):
    steps = CapturedSteps(RECIPE, 16, DATA, "cpu", recorder([]))
    with pytest.raises(ValueError, match=f"between 1 and {TABLE} steps are taken at a time"):
        steps.run(0, n)


def test_a_run_on_a_cpu_is_not_captured():
    assert Trainer(TINY, RECIPE, DATA, "cpu").captured is None


def test_steps_that_fill_in_masks_hide_what_single_ones_hide():
    """The masks of a stretch are drawn before its steps, each by the generator of its step."""
    single, captured = (Trainer(BOTH_WAYS, RECIPE, DATA, "cpu") for _ in range(2))
    captured.captured = CapturedSteps(RECIPE, 16, DATA, "cpu", captured._update, captured._hide)
    losses = captured.captured.run(0, 4) + captured.captured.run(4, 7)
    np.testing.assert_allclose(losses, [float(single.step()) for _ in range(11)], rtol=1e-3)


@pytest.mark.parametrize("B", [1, 4])
def test_what_is_drawn_before_a_step_is_what_the_loss_would_draw(B):
    tokens = torch.randint(0, 256, (B, 16), generator=torch.Generator().manual_seed(1))
    model = Transformer(BOTH_WAYS)
    for seed in range(20):
        there, before = (torch.Generator().manual_seed(seed) for _ in range(2))
        wanted = diffusion.training_loss(model, tokens, there)
        found = diffusion.loss_of_hidden(model, tokens, diffusion.draw_hidden(B, 16, before))
        assert torch.equal(found, wanted)


def test_a_run_that_is_taken_up_is_captured_anew(tmp_path):
    """The graph has the addresses of the optimizer's state, and that is another's then."""
    trainer = Trainer(TINY, RECIPE, DATA, "cpu")
    trainer.captured = CapturedSteps(RECIPE, 16, DATA, "cpu", trainer._update)
    trainer.step()
    trainer.save(tmp_path / "run.pt")
    trainer.captured.graph = object()
    trainer.resume(tmp_path / "run.pt")
    assert trainer.captured.graph is None


@pytest.mark.parametrize("here_is_a_card", [True, False])
def test_a_run_goes_on_on_another_device(here_is_a_card, tmp_path):
    """A card keeps rates as tensors, and says that its steps can be captured; a CPU's run that goes
    on there must say so, too, or torch refuses the capture."""

    def trainer(on_card: bool) -> Trainer:
        made = Trainer(TINY, RECIPE, DATA, "cpu")
        for optimizer, _ in made.optimizer.parts:
            for group in optimizer.param_groups:
                if "capturable" in group:
                    group["capturable"] = on_card
        return made

    before, here = trainer(not here_is_a_card), trainer(here_is_a_card)
    before._update(batch(DATA, 0, RECIPE.B, 16, RECIPE.seed), torch.tensor(1 / 3))
    before.step_count = 1
    before.save(tmp_path / "run.pt")
    here.resume(tmp_path / "run.pt")
    adam = here.optimizer.parts[-1][0]
    assert [group["capturable"] for group in adam.param_groups] == [here_is_a_card]
    assert float(here.step()) == float(before.step())
    for ours, theirs in zip(here.model.parameters(), before.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@needs_a_card
@pytest.mark.parametrize("config", [TINY, EXPERTS, BOTH_WAYS], ids=["one MLP", "experts", "masks"])
def test_replayed_steps_are_those_that_are_launched_one_by_one(config):
    launched, replayed = (Trainer(config, RECIPE, DATA, "cuda") for _ in range(2))
    launched.captured = None
    while launched.step_count < launched.total_steps:
        launched.step()
    losses = replayed.captured.run(0, WARM_UP + 1) + replayed.captured.run(WARM_UP + 1, 26)
    assert replayed.captured.graph is not None
    # atomics sum gradients of the embedding in any order
    np.testing.assert_allclose(losses, launched.losses, rtol=1e-2)


@needs_a_card
def test_a_run_on_a_gpu_goes_on_where_it_was(tmp_path):
    half = Trainer(TINY, RECIPE, DATA, "cuda")
    assert half.captured
    half.losses += half.captured.run(0, 12)
    half.step_count = 12
    half.save(tmp_path / "run.pt")
    resumed, straight = (Trainer(TINY, RECIPE, DATA, "cuda") for _ in range(2))
    train(resumed, tmp_path / "run.pt")
    train(straight, tmp_path / "straight.pt")
    assert len(resumed.losses) == 30
    assert resumed.losses[:12] == half.losses
    np.testing.assert_allclose(resumed.losses, straight.losses, rtol=1e-2)


@needs_a_card
def test_a_run_that_a_cpu_began_goes_on_captured_on_a_gpu(tmp_path):
    begun = Trainer(TINY, RECIPE, DATA, "cpu")
    while begun.step_count < 12:
        begun.step()
    begun.save(tmp_path / "run.pt")
    resumed = Trainer(TINY, RECIPE, DATA, "cuda")
    train(resumed, tmp_path / "run.pt")
    assert resumed.captured
    assert resumed.captured.graph is not None
    assert resumed.losses[:12] == begun.losses
    assert len(resumed.losses) == 30
