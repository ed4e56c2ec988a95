"""What training makes of few bits, what a rounded cache costs, and models in every number format:
adapters begin as the base and alone learn, rounding in training is the rounding that is stored, and
a cache that rounds nothing changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from twophase.kernels.quantization.integers import IntegerFormat
from twophase.kernels.quantization.normal_float import encode_nf4
from twophase.models import checkpoints
from twophase.models.config import Config
from twophase.models.linear import linears
from twophase.models.quantize import quantize
from twophase.models.quantize.adapters import (
    Adapted,
    NormalFloatLinear,
    RoundedLinear,
    adapter_parameters,
    round_while_training,
    with_adapters,
)
from twophase.models.quantize.caches import CacheFormat, bits_by_position
from twophase.models.quantize.calibration import body_linears
from twophase.models.quantize.formats import FORMATS, with_rounded_weights
from twophase.models.quantize.tuned import RECIPE, result, train_adapters, train_on
from twophase.models.transformer import Transformer
from twophase.theory.quantization import (
    BLOCK_FORMATS,
    format_of_rows,
    integer_bits_per_weight,
    normal_float_bytes,
)

SMALL = Config(L=2, D=64, F=96, N=4, K=2, H=16, V=50, context=32)


def made(config: Config = SMALL) -> Transformer:
    torch.manual_seed(4)
    model = Transformer(config)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    return model.eval().requires_grad_(False)


def tokens(n: int = 4, T: int = 24) -> torch.Tensor:
    return torch.randint(0, 50, (n, T), generator=torch.Generator().manual_seed(1))


def test_an_adapter_begins_as_its_base_and_is_the_low_rank_product_beside_it() -> None:
    model = made()
    assert torch.equal(with_adapters(model, 2, nf4=False)(tokens()), model(tokens()))
    adapted = with_adapters(model, 2)
    layer = next(m for m in adapted.modules() if isinstance(m, Adapted))
    base = layer.base
    assert isinstance(base, NormalFloatLinear)
    weight = dict(linears(model))[body_linears(model)[0]].weight
    assert torch.equal(base.stored.decode(), encode_nf4(weight).decode())
    with torch.no_grad():
        layer.up.normal_()
    x = torch.randn(3, 5, layer.down.shape[1])
    whole = base.stored.decode() + layer.scale * layer.up @ layer.down  # merged, [O, I]
    torch.testing.assert_close(layer(x), x @ whole.T, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="rank of at least 1"):
        with_adapters(model, 0)


def test_only_adapters_learn_and_the_loss_falls() -> None:
    import numpy as np

    data = np.tile(np.arange(7, dtype=np.uint8), 400)
    model = with_adapters(made(), 2)
    before = {n: t.clone() for n, t in model.state_dict().items()}
    stored = [m.stored.codes.clone() for m in model.modules() if isinstance(m, NormalFloatLinear)]
    windows = torch.from_numpy(data[: 33 * 4].astype(np.int64)).view(4, 33)

    def loss() -> float:
        with torch.no_grad():
            logits = model(windows[:, :-1]).flatten(0, 1)
        return float(torch.nn.functional.cross_entropy(logits, windows[:, 1:].flatten()))

    first = loss()
    train_adapters(model, replace(RECIPE, n_tokens=8 * 32 * 12), data)
    assert loss() < first - 0.1
    changed = {n for n, t in model.state_dict().items() if not torch.equal(t, before[n])}
    assert changed
    assert all(n.endswith((".down", ".up")) for n in changed)
    assert len(adapter_parameters(model)) == 2 * len(body_linears(made()))
    again = [m.stored.codes for m in model.modules() if isinstance(m, NormalFloatLinear)]
    assert all(torch.equal(a, b) for a, b in zip(stored, again, strict=True))


def test_rounding_in_training_is_the_rounding_that_is_stored_and_weights_learn_through_it() -> None:
    how = IntegerFormat(3, 32, affine=True)
    model = made()
    aware = made().requires_grad_(True)
    weights = {id(p) for p in aware.parameters()}
    round_while_training(aware, how)
    assert {id(p) for p in aware.parameters()} == weights  # an optimizer keeps what it has
    assert sum(isinstance(m, RoundedLinear) for m in aware.modules()) == len(body_linears(model))
    expected = quantize(model, "nearest", how)(tokens())
    torch.testing.assert_close(aware(tokens()), expected, rtol=1e-4, atol=1e-4)
    aware(tokens()).square().mean().backward()
    layers = [m for m in aware.modules() if isinstance(m, RoundedLinear)]
    assert all(m.weight.grad is not None and bool(m.weight.grad.any()) for m in layers)


def test_the_gradient_of_a_rounded_layer_is_that_of_its_rounded_weight() -> None:
    how, linear = IntegerFormat(2, 8), torch.nn.Linear(16, 6, bias=False)
    layer, x = RoundedLinear(linear, how), torch.randn(5, 16)
    (layer(x) ** 2).sum().backward()
    from twophase.kernels.quantization.integers import encode

    rounded = encode(linear.weight.detach(), how).decode().requires_grad_()
    ((x @ rounded.T) ** 2).sum().backward()
    torch.testing.assert_close(layer.weight.grad, rounded.grad)


def test_training_on_gives_back_a_plain_model_and_leaves_the_first_as_it_is() -> None:
    import numpy as np

    data = np.tile(np.arange(11, dtype=np.uint8), 300)
    model, how = made(), IntegerFormat(3, 32)
    before = {n: t.clone() for n, t in model.state_dict().items()}
    recipe = replace(RECIPE, n_tokens=8 * 32 * 3, autocast=False)
    found = train_on(model, recipe, data, how)
    assert set(found.state_dict()) == set(before)
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())
    assert any(not torch.equal(t, before[n]) for n, t in found.state_dict().items())


def test_a_cache_that_is_not_rounded_gives_the_loss_of_one_pass() -> None:
    model, ids = made(), tokens(3, 25)
    found = bits_by_position(model, ids, None, run=8)
    logits = model(ids[:, :-1])
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
    )
    expected = expected.view(3, -1).mean(0) / torch.log(torch.tensor(2.0))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_the_first_run_sees_nothing_rounded_and_a_run_that_is_not_full_stays() -> None:
    model, ids = made(), tokens(3, 25)
    plain = bits_by_position(model, ids, None, run=8)
    coarse = bits_by_position(model, ids, CacheFormat(2, 2, group=8), run=8)
    torch.testing.assert_close(coarse[:8], plain[:8], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(coarse[8:], plain[8:], rtol=1e-3)
    whole = bits_by_position(model, ids, CacheFormat(2, 2, group=8), run=100)
    torch.testing.assert_close(whole, plain, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="only full caches"):
        bits_by_position(made(replace(SMALL, attention="sliding", window=8)), ids, None)


@pytest.mark.parametrize("name", FORMATS)
def test_a_model_in_a_format_has_the_bits_of_theory_and_is_close(name: str) -> None:
    model = made()
    rounded, bits = with_rounded_weights(model, name)
    if name in BLOCK_FORMATS:
        own = format_of_rows(name, 64)  # as of 96: of 256 there are none
        expected = float(BLOCK_FORMATS[str(own)].bits_per_weight)
    elif name.startswith("nf4"):
        n = 64 * 96
        expected = 8 * normal_float_bytes(n, double=name.endswith("double")) / n
    elif name.startswith("e4m3"):
        expected = 8
    else:
        width, affine = int(name[3]), name.endswith("affine")
        shared = {"groups of 64": 64, "groups of 32": 32, "a scale a tensor": 10**9}
        # a channel: rows of 64, and some of 96
        group = next((n for text, n in shared.items() if text in name), 70)
        expected = integer_bits_per_weight(width, group, 2, width if affine else 0)
    assert bits == pytest.approx(expected, rel=0.05)
    for (at, w), (_, found) in zip(linears(model), linears(rounded), strict=True):
        error = (found.weight - w.weight).pow(2).mean() / w.weight.pow(2).mean()
        if at.startswith("layers."):
            assert 0 < error < (0.002 if bits > 7.9 else 0.1 if bits > 3.9 else 0.6), at
        else:
            assert error == 0, at
    with pytest.raises(ValueError, match="a format is one of"):
        with_rounded_weights(model, "int9")


def test_the_committed_runs_are_of_the_committed_weights_and_complete() -> None:
    found = result()
    assert found["source_sha256"] == checkpoints.card(found["source"])["weights_sha256"]
    ways = {(r["weights"], r["way"]) for r in found["rows"]}
    seeds = {r["seed"] for r in found["rows"]}
    assert len(found["rows"]) == len(ways) * len(seeds)
    assert {("nf4", "adapters"), ("bf16", "adapters"), ("int2", "qat")} <= ways
