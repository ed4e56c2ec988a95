"""Training: it learns, it sees each window once, and a killed run ends where an unbroken one does."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from twophase.models.train import Recipe, Trainer, batch, bits_per_byte, train
from twophase.models.transformer import Config, Transformer

TINY = Config(L=2, D=16, F=24, N=4, K=2, H=4, context=16)
RECIPE = Recipe(n_tokens=12 * 4 * 16, B=4, warmup_steps=3, seed=5)
DATA = np.frombuffer(b"def f(x):\n    return x + 1\n\n" * 20, dtype=np.uint8)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return list(trainer.model.state_dict().values())


class Killed(Exception):
    pass


@pytest.mark.parametrize("after", [1, 5, 11])
def test_a_killed_and_resumed_run_ends_with_the_very_same_weights(tmp_path, monkeypatch, after):
    straight = Trainer(TINY, RECIPE, DATA, "cpu")
    train(straight, tmp_path / "straight.pt")

    def step_until_killed(self: Trainer) -> torch.Tensor:
        if self.step_count == after:
            raise Killed
        return step(self)

    step = Trainer.step
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", step_until_killed)
        killed = Trainer(TINY, RECIPE, DATA, "cpu")
        with pytest.raises(Killed):
            train(killed, tmp_path / "run.pt", every_s=-1.0)
    resumed = Trainer(TINY, RECIPE, DATA, "cpu")
    train(resumed, tmp_path / "run.pt")
    assert resumed.step_count == straight.step_count == 12
    assert all(map(torch.equal, weights(resumed), weights(straight)))
    assert resumed.seconds > 0


def test_a_run_with_another_recipe_is_not_taken_up(tmp_path):
    Trainer(TINY, RECIPE, DATA, "cpu").save(tmp_path / "run.pt")
    other = Trainer(TINY, dataclasses.replace(RECIPE, lr=1e-3), DATA, "cpu")
    with pytest.raises(ValueError, match="has another recipe: finish it, delete it, or choose another --out"):
        other.resume(tmp_path / "run.pt")


def test_a_save_that_is_interrupted_leaves_the_one_before_it(tmp_path, monkeypatch):
    trainer = Trainer(TINY, RECIPE, DATA, "cpu")
    trainer.save(tmp_path / "run.pt")
    before = (tmp_path / "run.pt").read_bytes()

    def half(state: object, path: object) -> None:
        (tmp_path / "run.tmp").write_bytes(b"half")
        raise Killed

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(Killed):
        trainer.save(tmp_path / "run.pt")
    assert (tmp_path / "run.pt").read_bytes() == before


def test_an_epoch_visits_every_window_once_and_the_next_in_another_order():
    data = np.arange(400, dtype=np.int64)  # each token is its own position
    T, B = 10, 3
    per_epoch = ((len(data) - 1) // T - 1) // B
    epochs = [torch.cat([batch(data, e * per_epoch + i, B, T, 0) for i in range(per_epoch)]) for e in (0, 1)]
    for windows in epochs:
        assert (windows[:, 1:] == windows[:, :-1] + 1).all()
        assert len(set(windows[:, 0].tolist())) == len(windows)
        assert len({s % T for s in windows[:, 0].tolist()}) == 1
    assert epochs[0][:, 0].tolist() != epochs[1][:, 0].tolist()


def test_another_seed_is_another_model_and_another_order():
    a, b = (Trainer(TINY, dataclasses.replace(RECIPE, seed=s), DATA, "cpu") for s in (1, 2))
    assert not torch.equal(weights(a)[0], weights(b)[0])
    assert not torch.equal(batch(DATA, 0, 4, 16, 1), batch(DATA, 0, 4, 16, 2))


def test_the_learning_rate_warms_up_to_its_peak_and_falls_to_its_end():
    r, T = Recipe(n_tokens=100 * 32 * 8, warmup_steps=10), 8
    rates = [r.lr_at(step, T) for step in range(r.steps(T) + 1)]
    assert rates[0] == pytest.approx(r.lr / 10)
    assert max(rates) == rates[10] == pytest.approx(r.lr)
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] == pytest.approx(r.lr_end)


def test_training_learns_a_repeated_text():
    trainer = Trainer(TINY, dataclasses.replace(RECIPE, n_tokens=200 * 4 * 16, lr=1e-2), DATA, "cpu")
    before = bits_per_byte(trainer.model, DATA)
    for _ in range(200):
        trainer.step()
    assert before > 7.5
    assert bits_per_byte(trainer.model, DATA) < 1.5


def test_a_model_that_knows_nothing_needs_eight_bits_per_byte():
    model = Transformer(TINY)
    torch.nn.init.zeros_(model.embed_tokens.weight)
    assert bits_per_byte(model, DATA) == pytest.approx(math.log2(256))


def test_data_too_short_for_a_batch_is_refused():
    with pytest.raises(ValueError, match="do not fill one batch"):
        batch(DATA[:40], 0, 4, 16, 0)
