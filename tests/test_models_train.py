"""Training: it learns, it sees each window once, and a killed run ends where an unbroken one
does."""

import dataclasses
import functools
import math
from typing import BinaryIO

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode

from twophase.models import checkpoints, corpus
from twophase.models.evaluate import bits, bits_per_byte, curve, repeats, windows
from twophase.models.layer_sizes import LinearAttention, StateSpace
from twophase.models.mixture_of_experts import Experts, run_every_expert
from twophase.models.muon import PaddedStack, StackedMuon
from twophase.models.optimizer import MuonAdamW
from twophase.models.recipe import Recipe, batch
from twophase.models.train import EVERY, finish, train
from twophase.models.train import main as train_main
from twophase.models.trainer import Trainer
from twophase.models.transformer import Config, Transformer
from twophase.theory.sizes import LatentAttention, MixtureOfExperts

TINY = Config(L=2, D=16, F=24, N=4, K=2, H=4, context=16)
RECIPE = Recipe(n_tokens=12 * 4 * 16, B=4, warmup_steps=3, seed=5)
KINDS = {
    "grouped queries": {},
    "latent": {"attention": "mla", "mla": LatentAttention(R=6, rope_dim=2, nope_dim=4, v_dim=3)},
    "sliding": {"attention": ("sliding", "gqa"), "window": 5},
    "shared keys": {"kv_source": (0, 0)},
    "linear": {"attention": "linear", "linear": LinearAttention(feature_dim=4)},
    "state space": {"attention": "ssm", "ssm": StateSpace(d_inner=20, d_state=3, dt_rank=2)},
    "experts": {"moe": MixtureOfExperts(E=3, k=2, F=10)},
    "diffusion": {"causal": False, "V": 257},
}
DATA = np.frombuffer(b"def f(x):\n    return x + 1\n\n" * 20, dtype=np.uint8)


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return list(trainer.model.state_dict().values())


class Killed(Exception):
    pass


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        ("grouped queries", 1),
        ("grouped queries", 11),
        *(pytest.param(k, 5, marks=[] if k == "experts" else pytest.mark.more) for k in KINDS),
    ],
)
def test_a_killed_and_resumed_run_ends_with_the_very_same_weights(
    tmp_path, monkeypatch, kind, after
):
    config = dataclasses.replace(TINY, **KINDS[kind])
    straight = Trainer(config, RECIPE, DATA, "cpu")
    train(straight, tmp_path / "straight.pt")

    def step_until_killed(self: Trainer) -> torch.Tensor:
        if self.step_count == after:
            raise Killed
        return step(self)

    step = Trainer.step
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", step_until_killed)
        killed = Trainer(config, RECIPE, DATA, "cpu")
        with pytest.raises(Killed):
            train(killed, tmp_path / "run.pt", every_s=-1.0)
    resumed = Trainer(config, RECIPE, DATA, "cpu")
    train(resumed, tmp_path / "run.pt")
    assert resumed.step_count == straight.step_count == 12
    assert all(map(torch.equal, weights(resumed), weights(straight)))
    assert resumed.losses == straight.losses
    assert resumed.seconds > 0


def test_a_resumed_run_tells_the_rate_of_now_and_not_that_of_the_machine_before(tmp_path, capsys):
    trainer = Trainer(TINY, RECIPE, DATA, "cpu")
    trainer.step_count, trainer.seconds, trainer.losses = 6, 1e9, [1.0] * 6
    trainer.save(tmp_path / "run.pt")
    capsys.readouterr()
    train(Trainer(TINY, RECIPE, DATA, "cpu"), tmp_path / "run.pt", every_s=-1.0)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step")]
    left_s = [float(line.split()[-3]) for line in lines]
    assert len(left_s) == 6
    assert max(left_s) < 1e6  # of 1e9 for as many steps before


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_of_every_kind_of_layer_is_trained(kind):
    trainer = Trainer(dataclasses.replace(TINY, **KINDS[kind]), RECIPE, DATA, "cpu")
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    for _ in range(6):
        trainer.step()
    still = [name for name, p in trainer.model.named_parameters() if torch.equal(p, before[name])]
    assert still == []


def test_stacked_experts_take_the_steps_that_single_matrices_would():
    torch.manual_seed(0)
    stack, singles = torch.nn.Module(), torch.nn.Module()
    stack.layers, singles.layers = torch.nn.Module(), torch.nn.Module()
    stack.layers.experts = torch.nn.Parameter(torch.randn(3, 4, 5))
    for e in range(3):
        singles.layers.register_parameter(
            f"m{e}", torch.nn.Parameter(stack.layers.experts[e].detach().clone())
        )
    optimizers = [
        MuonAdamW(m, lr_matrices=0.1, lr_others=0.1, weight_decay=0.1) for m in (stack, singles)
    ]
    for _ in range(3):
        gradient = torch.randn(3, 4, 5)
        stack.layers.experts.grad = gradient
        for p, g in zip(singles.parameters(), gradient, strict=True):
            p.grad = g
        for optimizer in optimizers:
            optimizer.step(share=0.5)
    torch.testing.assert_close(
        stack.layers.experts.detach(), torch.stack([p.detach() for p in singles.parameters()])
    )


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[] if k == "grouped queries" else pytest.mark.more) for k in KINDS],
)
def test_a_traced_step_is_the_plain_one(monkeypatch, kind):
    config = dataclasses.replace(TINY, **KINDS[kind])
    plain, traced = (Trainer(config, RECIPE, DATA, "cpu") for _ in range(2))
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    assert traced.compile() == (kind not in ("state space", "experts"))
    for _ in range(4):
        assert float(traced.step()) == pytest.approx(float(plain.step()), rel=1e-6)


@pytest.mark.more
@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_step_is_the_plain_one_up_to_rounding(kind):
    config = dataclasses.replace(TINY, **KINDS[kind])
    plain, compiled = (Trainer(config, RECIPE, DATA, "cpu") for _ in range(2))
    if not compiled.compile():
        pytest.skip("states and experts never are compiled, others where there is a C++ compiler")
    for _ in range(4):  # products are in bf16, whose rounding is 2⁻⁹
        assert float(compiled.step()) == pytest.approx(float(plain.step()), rel=2e-3)


def test_where_nothing_compiles_a_run_goes_on_without(monkeypatch):
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(torch, "compile", fails)
    trainer = Trainer(TINY, RECIPE, DATA, "cpu")
    assert not trainer.compile()
    assert math.isfinite(float(trainer.step()))


@pytest.mark.parametrize("together", [None, True], ids=["shape by shape", "padded, in one stack"])
@pytest.mark.parametrize("nesterov", [True, False])
def test_stacked_matrices_take_the_steps_of_torch_s_muon(nesterov, together):
    torch.manual_seed(0)
    shapes = [(6, 8), (8, 6), (8, 6), (8, 8), (3, 8), (6, 8), (8, 3)]
    ours, torchs = ([torch.nn.Parameter(torch.randn(s)) for s in shapes] for _ in range(2))
    for p, q in zip(ours, torchs, strict=True):
        q.data.copy_(p.data)
    options = {"weight_decay": 0.1, "nesterov": nesterov, "adjust_lr_fn": "match_rms_adamw"}
    optimizers = StackedMuon(ours, 0.02, **options), torch.optim.Muon(torchs, 0.02, **options)
    optimizers[0].together = together
    for step in range(5):
        for i, (p, q) in enumerate(zip(ours, torchs, strict=True)):
            skipped = (
                step == 2 and i == 1
            )  # a matrix without a gradient stays, and so does its mean
            p.grad = None if skipped else torch.randn(p.shape)
            if i == 6:  # an expert whom nobody visits: no direction, and nothing to divide by
                p.grad = torch.zeros(p.shape)
            q.grad = p.grad
        for optimizer in optimizers:
            optimizer.step()
    for p, q in zip(ours, torchs, strict=True):  # directions are in bf16: 2⁻⁹ of a step of 0.02
        torch.testing.assert_close(p.detach(), q.detach(), rtol=0, atol=1e-4)
    states = [o.state_dict()["state"] for o in optimizers]
    for i in range(len(shapes)):  # a run saved by one goes on with the other
        assert states[0][i].keys() == states[1][i].keys()
        torch.testing.assert_close(states[0][i]["momentum_buffer"], states[1][i]["momentum_buffer"])


@pytest.mark.parametrize("together", [None, True], ids=["shape by shape", "padded, in one stack"])
def test_steps_of_a_size_that_stacked_matrices_do_not_take_are_refused(together):
    matrix = torch.nn.Parameter(torch.eye(3))
    matrix.grad = torch.eye(3)
    optimizer = StackedMuon([matrix], 0.02, adjust_lr_fn="original")
    optimizer.together = together
    with pytest.raises(ValueError, match=r"adjust_lr_fn.*match_rms_adamw; got 'original'"):
        optimizer.step()
    assert torch.equal(matrix.detach(), torch.eye(3))


@pytest.mark.parametrize("shapes", [[(3, 5)], [(3, 5), (7, 2), (4, 4), (1, 9), (9, 1), (8, 1)]])
def test_a_padded_stack_has_every_number_once_and_zeros_elsewhere(shapes):
    """Small whole numbers are exact in bf16."""
    numbers = iter(range(1, 257))
    matrices = [
        torch.tensor([[float(next(numbers)) for _ in range(c)] for _ in range(r)])
        for r, c in shapes
    ]
    padded = PaddedStack(tuple(shapes), torch.device("cpu"))
    stack = padded.stacked(matrices)
    assert stack.shape == (len(shapes), max(min(s) for s in shapes), max(max(s) for s in shapes))
    for inside, matrix in zip(stack.float(), matrices, strict=True):
        wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT
        rows, columns = wide.shape
        assert torch.equal(inside[:rows, :columns], wide)
        assert inside.abs().sum() == wide.sum()  # all else is 0
    for back, matrix in zip(padded.apart(stack), matrices, strict=True):
        assert torch.equal(back.float(), matrix)


def test_a_padded_stack_takes_as_many_products_as_matrices_of_one_shape():
    """What a step of a small model takes on a card is the launches of its kernels."""

    class Counted(TorchDispatchMode):
        products = 0

        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            self.products += "bmm" in str(operator)
            return operator(*args, **(kwargs or {}))

    matrices = [torch.nn.Parameter(torch.eye(4, n)) for n in range(4, 9)]
    optimizer = StackedMuon(matrices, 0.02, adjust_lr_fn="match_rms_adamw")
    counts = []
    for together in (False, True):
        for p in matrices:
            p.grad = torch.ones_like(p)
        optimizer.together = together
        with Counted() as counted:
            optimizer.step()
        counts.append(counted.products)
    assert counts == [5 * 15, 15]  # three products in each of five rounds


def test_a_run_with_another_recipe_is_not_taken_up(tmp_path):
    Trainer(TINY, RECIPE, DATA, "cpu").save(tmp_path / "run.pt")
    other = Trainer(TINY, dataclasses.replace(RECIPE, lr_others=1e-4), DATA, "cpu")
    with pytest.raises(ValueError, match="has another recipe: delete it, or choose another --out"):
        other.resume(tmp_path / "run.pt")


def test_a_save_that_is_interrupted_leaves_the_one_before_it(tmp_path, monkeypatch):
    trainer = Trainer(TINY, RECIPE, DATA, "cpu")
    trainer.save(tmp_path / "run.pt")
    before = (tmp_path / "run.pt").read_bytes()

    def half(state: object, file: BinaryIO) -> None:
        file.write(b"half")
        raise Killed

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(Killed):
        trainer.save(tmp_path / "run.pt")
    assert (tmp_path / "run.pt").read_bytes() == before


def test_an_epoch_visits_every_window_once_and_the_next_in_another_order():
    data = np.arange(400, dtype=np.int64)  # each token is its own position
    T, B = 10, 3
    per_epoch = ((len(data) - 1) // T - 1) // B
    epochs = [
        torch.cat([batch(data, e * per_epoch + i, B, T, 0) for i in range(per_epoch)])
        for e in (0, 1)
    ]
    for epoch in epochs:
        assert (epoch[:, 1:] == epoch[:, :-1] + 1).all()
        assert len(set(epoch[:, 0].tolist())) == len(epoch)
        assert len({s % T for s in epoch[:, 0].tolist()}) == 1
    assert epochs[0][:, 0].tolist() != epochs[1][:, 0].tolist()


def test_another_seed_is_another_model_and_another_order():
    a, b = (Trainer(TINY, dataclasses.replace(RECIPE, seed=s), DATA, "cpu") for s in (1, 2))
    assert not torch.equal(weights(a)[0], weights(b)[0])
    assert not torch.equal(batch(DATA, 0, 4, 16, 1), batch(DATA, 0, 4, 16, 2))


def test_the_learning_rate_warms_up_to_its_peak_and_falls_to_its_end():
    r, T = Recipe(n_tokens=100 * 32 * 8, B=32, warmup_steps=10), 8
    rates = [r.lr_share(step, T) for step in range(r.steps(T) + 1)]
    assert rates[0] == pytest.approx(1 / 10)
    assert max(rates) == rates[10] == pytest.approx(1)
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] == pytest.approx(r.lr_end)


def test_training_learns_a_repeated_text():
    trainer = Trainer(
        TINY,
        dataclasses.replace(RECIPE, n_tokens=200 * 4 * 16, lr_matrices=2e-2, lr_others=1e-2),
        DATA,
        "cpu",
    )
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


def test_the_curve_is_the_mean_loss_of_equal_stretches_in_bits():
    losses = [math.log(2) * x for x in (4.0, 2.0, 3.0, 1.0, 2.0, 0.0)]
    assert curve(losses, points=3) == [3.0, 2.0, 1.0]
    assert curve(losses[:2], points=40) == [4.0, 2.0]


def test_of_every_so_many_windows_the_first_is_counted():
    model = Transformer(TINY)
    T = TINY.context
    windows = [DATA[i * T : (i + 1) * T + 1] for i in (0, 3, 6)]
    wanted = sum(bits_per_byte(model, window) for window in windows) / 3
    assert bits_per_byte(model, DATA[: 7 * T + 1], every=3) == pytest.approx(wanted, rel=1e-6)


def test_bits_of_single_bytes_are_those_that_the_mean_is_of():
    model = Transformer(TINY)
    inputs, targets = windows(DATA, TINY.context, every=2)
    found = bits(model, inputs, targets, B=3)
    assert found.shape == targets.shape
    logits = model(inputs[5:6]).detach().log_softmax(-1)[0, 7, targets[5, 7]]
    assert found[5, 7] == pytest.approx(-float(logits) / math.log(2), rel=1e-5)
    mean = bits_per_byte(model, DATA, every=2)
    assert float(found.mean()) == pytest.approx(mean, rel=1e-6)


def test_a_byte_repeats_what_followed_when_the_bytes_before_it_stood_there_last():
    """Not what followed some other time, nor what followed fewer of these bytes."""
    text = np.frombuffer(b"abcXabcXabcYabcXbcX", np.uint8)
    inputs, targets = windows(text, len(text) - 1)
    shown = "".join(
        chr(b) if r else "."
        for b, r in zip(targets[0], repeats(inputs, targets, 3)[0], strict=True)
    )
    assert shown == "......Xabc........"
    assert not repeats(inputs, targets, 9).any()


@pytest.mark.parametrize("content", [b"", b"PK", b"not a run at all"])
def test_a_damaged_run_is_named_as_one(tmp_path, content):
    (tmp_path / "run.pt").write_bytes(content)
    with pytest.raises(ValueError, match=r"run\.pt is damaged: delete it to begin anew"):
        Trainer(TINY, RECIPE, DATA, "cpu").resume(tmp_path / "run.pt")


def test_a_truncated_run_is_named_as_one(tmp_path):
    trainer = Trainer(TINY, RECIPE, DATA, "cpu")
    trainer.save(tmp_path / "run.pt")
    whole = (tmp_path / "run.pt").read_bytes()
    (tmp_path / "run.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="is damaged"):
        trainer.resume(tmp_path / "run.pt")


def test_a_run_that_diverges_stops_with_a_sentence(tmp_path):
    trainer = Trainer(
        TINY, dataclasses.replace(RECIPE, lr_others=1e30, lr_matrices=1e30), DATA, "cpu"
    )
    with pytest.raises(
        ValueError, match=r"the loss is (nan|inf) at step \d+: lower the learning rates"
    ):
        train(trainer, tmp_path / "run.pt")


@pytest.mark.parametrize(
    "wrong", [["--tokens", "0"], ["--threads", "-1"], ["--seed", "99999999999"], ["gpt-9"]]
)
def test_the_command_refuses_what_it_cannot_do(monkeypatch, capsys, wrong):
    monkeypatch.setattr("sys.argv", ["train", *(["gqa"] if len(wrong) > 1 else []), *wrong])
    with pytest.raises(SystemExit):
        train_main()
    assert wrong[-1] in capsys.readouterr().err


@pytest.mark.parametrize("stored", [(), ("tiny",)])
def test_the_card_of_a_run_tells_the_loss_of_the_very_weights_that_it_saved(
    tmp_path, monkeypatch, stored
):
    monkeypatch.setattr("twophase.models.train.STORED_IN_INT8", stored)
    held_out = corpus.load("held_out")[:2000]
    monkeypatch.setattr(corpus, "load", lambda split: held_out)
    trainer = Trainer(TINY, Recipe(n_tokens=1024, B=2), held_out, "cpu")
    for _ in range(3):
        trainer.step()
    finish(trainer, "tiny", tmp_path)
    loaded = checkpoints.load("tiny", folder=tmp_path)
    told = checkpoints.card("tiny", tmp_path)["held_out_bits_per_byte"]
    assert told == round(bits_per_byte(loaded, held_out, every=EVERY), 4)
    holds = load_file(tmp_path / "tiny.safetensors").values()
    assert any(t.dtype == torch.uint8 for t in holds) == bool(stored)


def test_a_mixture_that_a_card_trained_is_measured_as_its_users_run_it(tmp_path, monkeypatch):
    """There all experts ran on all tokens, which rounds otherwise; a loaded model visits them."""
    held_out, measured = corpus.load("held_out")[:2000], []
    monkeypatch.setattr(corpus, "load", lambda split: held_out)

    def record(model, data, every):
        measured.append([m.all_visited for m in model.modules() if isinstance(m, Experts)])
        return 8.0

    monkeypatch.setattr("twophase.models.train.bits_per_byte", record)
    config = dataclasses.replace(TINY, moe=MixtureOfExperts(E=3, k=2, F=10))
    trainer = Trainer(config, Recipe(n_tokens=1024, B=2), held_out, "cpu")
    run_every_expert(trainer.model)  # as on a card
    trainer.step()
    finish(trainer, "tiny", tmp_path)
    assert measured == [[False] * TINY.L]
