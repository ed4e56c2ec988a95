"""Quantized models: scales that are folded change nothing, methods keep the bytes and differ in
loss, layers run in every dtype, and a directory gives back what was saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from twophase.kernels.quantization.integers import IntegerFormat
from twophase.kernels.quantization.named import NAMED, encode_named
from twophase.models import checkpoints, corpus
from twophase.models.config import Config
from twophase.models.evaluate import bits_per_byte
from twophase.models.generate import generate
from twophase.models.linear import linears, replace_linears
from twophase.models.quantize import (
    METHODS,
    NamedLinear,
    QuantizedLinear,
    methods,
    quantize,
    weight_bytes,
)
from twophase.models.quantize.activations import smooth, with_int8_activations, with_outliers
from twophase.models.quantize.calibration import body_linears, corpus_windows, watch, windows
from twophase.models.quantize.directory import card, is_quantized, load, save
from twophase.models.quantize.folding import folds, scale_inputs
from twophase.models.quantize.linear import matrices_by_format
from twophase.models.transformer import Transformer
from twophase.theory.quantization import BLOCK_FORMATS, format_of_rows, integer_bytes

SMALL = {"L": 2, "D": 24, "F": 40, "N": 4, "K": 4, "H": 6, "V": 50, "context": 32}
KINDS = {
    "gated": Config(**SMALL, tied=True),
    "grouped, biases, no gate": Config(
        **{**SMALL, "K": 2}, tied=False, qkv_bias=True, o_bias=True, mlp_bias=True, norm="layer",
        gated_mlp=False, activation="gelu",
    ),
    "four norms, norms of heads": Config(
        **SMALL, tied=True, norms_per_layer=4, qk_norm=True, norm_offset=1.0
    ),
}  # fmt: skip
FOUR = IntegerFormat(4, 16)


def made(kind: str | Config) -> Transformer:
    torch.manual_seed(3)
    model = Transformer(KINDS[kind] if isinstance(kind, str) else kind)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * (0.3 / p.shape[-1] ** 0.5 if p.ndim > 1 else 0.1))
    return model.eval().requires_grad_(False)


def tokens(n: int = 6, T: int = 20) -> torch.Tensor:
    return torch.randint(0, 50, (n, T), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", KINDS)
def test_scales_put_into_the_layer_before_change_nothing(kind: str) -> None:
    model, ids = made(kind), tokens()
    expected = model(ids)
    n = 0
    for fold in folds(model):
        layers = dict(linears(model))
        scale_inputs(model, fold, torch.rand(layers[fold.readers[0]].in_features) + 0.5)
        n += 1
    torch.testing.assert_close(model(ids), expected, rtol=1e-4, atol=1e-4)
    # per layer: q k v; gate, up; and o and down where nothing stands between
    assert (
        n == 2 * {"gated": 4, "grouped, biases, no gate": 2, "four norms, norms of heads": 4}[kind]
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_a_quantized_model_runs_and_has_the_bytes_of_theory(kind: str, method: str) -> None:
    model = made(kind)
    seen: list[tuple[int, int]] = []
    found = quantize(model, method, FOUR, tokens(), lambda *at: seen.append(at))
    names = body_linears(model)
    assert seen[-1] == (len(names), len(names))
    left = sum(p.nbytes for p in model.parameters())
    for name, linear in linears(model):
        if name in names:
            left -= linear.weight.nbytes
            left += integer_bytes(linear.out_features, linear.in_features, 4, 16)
    assert weight_bytes(found) == left
    assert not any(isinstance(m, QuantizedLinear) for m in model.modules())  # it is a copy
    expected, logits = model(tokens()), found(tokens())
    assert (logits - expected).pow(2).mean() < 0.1 * expected.pow(2).mean()


def test_a_quantized_layer_is_its_decoded_matrix_in_any_dtype() -> None:
    model = quantize(made("grouped, biases, no gate"), "nearest", FOUR)
    plain = made("grouped, biases, no gate")

    def decoded(name: str, linear: torch.nn.Linear) -> torch.nn.Module | None:
        if not name.startswith("layers."):
            return None
        linear.weight.copy_(dict(model.named_modules())[name].stored.decode())
        return linear

    replace_linears(plain, decoded)
    torch.testing.assert_close(model(tokens()), plain(tokens()))
    layer = next(m for m in model.modules() if isinstance(m, QuantizedLinear))
    before = layer.scales.clone()
    narrow = model.to(torch.bfloat16)
    assert narrow(tokens()).dtype == torch.bfloat16
    assert layer.scales.dtype == torch.float16
    assert torch.equal(layer.scales, before)


def test_calibration_sees_every_input_once() -> None:
    model, ids = made("gated"), tokens()
    seen = watch(model, body_linears(model), ids, B=4)
    h = model.layers[0].input_layernorm(model.embed_tokens(ids)).flatten(0, 1).double()
    first = seen["layers.0.self_attn.q_proj"]
    assert first.n == ids.numel()
    torch.testing.assert_close(first.hessian, h.T @ h, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(first.mean_size.double(), h.abs().mean(0))
    torch.testing.assert_close(first.largest.double(), h.abs().amax(0))
    assert not any(m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_damaged_weights_and_what_they_put_out_are_refused(wrong: float) -> None:
    model = made("gated")
    model.layers[0].input_layernorm.weight[2] = wrong
    for method in ("gptq", "awq"):
        with pytest.raises(ValueError, match=r"q_proj reads NaN or infinity on the calibration"):
            quantize(model, method, FOUR, tokens())
    model = made("gated")
    model.layers[1].mlp.up_proj.weight[3, 4] = wrong
    for how in (FOUR, "nf4"):
        with pytest.raises(ValueError, match="1 of 960 numbers are NaN or infinite"):
            quantize(model, "nearest", how)


def test_on_a_trained_model_gptq_loses_less_than_rounding_at_three_bits() -> None:
    """AWQ's gain is smaller than the luck of one rounding here (`compared`)."""
    model, data = checkpoints.load("mha"), corpus.load("held_out")
    calibration, how = corpus_windows(16, 128), IntegerFormat(3, 64)
    loss = {
        method: bits_per_byte(quantize(model, method, how, calibration), data, every=300)
        for method in ("nearest", "gptq")
    }
    assert bits_per_byte(model, data, every=300) < loss["gptq"] < loss["nearest"]


def test_what_awq_clips_meets_inputs_as_its_scales_have_left_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met: list[torch.Tensor] = []

    def clip(w: torch.Tensor, hessian: torch.Tensor, how: IntegerFormat) -> torch.Tensor:
        met.append(hessian)
        return w

    monkeypatch.setattr(methods, "clip_groups", clip)
    model = made("gated")
    names, before = body_linears(model), watch(model, body_linears(model), tokens())
    methods._scale_for_awq(model, names, IntegerFormat(3, 8), tokens(), clip=True)
    after = watch(model, names, tokens())
    clipped = [n for n in names if not n.rpartition(".")[2].startswith(("q_", "k_"))]
    for name, hessian in zip(clipped, met, strict=True):
        expected = after[name].hessian  # the same sums of fp32, scaled before or behind
        bound = 1e-4 * float(expected.abs().max())
        torch.testing.assert_close(hessian, expected, rtol=0, atol=bound)
    assert any(not torch.allclose(before[n].hessian, after[n].hessian, rtol=0.1) for n in clipped)


def test_clipped_awq_changes_layers_but_those_of_queries_and_keys() -> None:
    model = made("grouped, biases, no gate")
    plain = quantize(model, "awq", IntegerFormat(3, 8), tokens())
    cut = quantize(model, "awq", IntegerFormat(3, 8), tokens(), clip=True)
    assert weight_bytes(plain) == weight_bytes(cut)
    theirs = {n: m for n, m in plain.named_modules() if isinstance(m, QuantizedLinear)}
    changed = {
        n.rpartition(".")[2]
        for n, m in cut.named_modules()
        if isinstance(m, QuantizedLinear) and not torch.equal(m.codes, theirs[n].codes)
    }
    assert changed == {"v_proj", "o_proj", "up_proj", "down_proj"}
    with pytest.raises(ValueError, match="clipping is a part of awq"):
        quantize(model, "gptq", FOUR, tokens(), clip=True)


def test_outliers_ruin_int8_activations_and_both_remedies_mend_them() -> None:
    model, data = checkpoints.load("gqa"), corpus.load("held_out")

    def loss(of: Transformer) -> float:
        return bits_per_byte(of, data, every=300)

    plain = loss(model)
    wild = with_outliers(model, [3, 40], 60.0)
    assert loss(wild) == pytest.approx(plain, abs=1e-4)
    ruined = loss(with_int8_activations(wild)) - plain
    assert abs(loss(with_int8_activations(model)) - plain) < 0.02
    assert loss(with_int8_activations(wild, threshold=6.0)) - plain < ruined / 4
    assert loss(with_int8_activations(smooth(wild, corpus_windows(8, 128)))) - plain < ruined / 4


WIDE = Config(L=2, D=64, F=256, N=2, K=1, H=32, V=50, context=32, tied=True)


def wide(F: int = 256) -> Transformer:
    torch.manual_seed(3)
    return Transformer(replace(WIDE, F=F)).eval().requires_grad_(False)


@pytest.mark.parametrize("name", NAMED)
def test_a_model_in_a_named_format_runs_saves_and_has_the_bytes_of_theory(
    name: str, tmp_path: Path
) -> None:
    model = wide()
    found = quantize(model, "nearest", name)
    layers = {n: m for n, m in found.named_modules() if isinstance(m, NamedLinear)}
    assert sorted(layers) == sorted(body_linears(model))
    left = sum(p.nbytes for p in model.parameters())
    for at, linear in linears(model):
        if at in layers:
            own = format_of_rows(name, linear.in_features) if name in BLOCK_FORMATS else name
            assert layers[at].format == own
            expected = encode_named(linear.weight, str(own))
            assert torch.equal(layers[at].stored.decode(), expected.decode())
            left += expected.nbytes - linear.weight.nbytes
            if own in BLOCK_FORMATS:
                assert expected.nbytes == BLOCK_FORMATS[own].bytes(*linear.weight.shape)
    assert weight_bytes(found) == left
    save(found, tmp_path, {"method": "nearest"})
    again = load(tmp_path)
    assert torch.equal(again(tokens()), found(tokens()))
    assert weight_bytes(again) == left
    narrow = load(tmp_path, torch.bfloat16)
    assert narrow(tokens()).dtype == torch.bfloat16
    for layer, before in zip(
        [m for m in narrow.modules() if isinstance(m, NamedLinear)], layers.values(), strict=True
    ):
        assert torch.equal(layer.stored.decode(), before.stored.decode())


def test_super_blocks_fall_back_where_rows_are_not_multiples_of_256() -> None:
    assert matrices_by_format(quantize(wide(), "nearest", "q4_k")) == {"q5_0": 12, "q4_k": 2}
    assert matrices_by_format(quantize(wide(), "nearest", "q6_k")) == {"q8_0": 12, "q6_k": 2}
    odd = quantize(wide(F=100), "nearest", "q4_k")  # rows of 100 stay as they are
    assert matrices_by_format(odd) == {"q5_0": 12}
    assert body_linears(odd) == [f"layers.{i}.mlp.down_proj" for i in range(2)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("affine", [False, True])
def test_a_directory_gives_back_the_model_bit_for_bit(
    kind: str, affine: bool, tmp_path: Path
) -> None:
    how = IntegerFormat(3, 16, affine, torch.bfloat16)
    model = quantize(made(kind), "nearest", how)
    assert not is_quantized(tmp_path)
    save(model, tmp_path, {"method": "nearest"})
    assert is_quantized(tmp_path)
    assert card(tmp_path)["method"] == "nearest"
    again = load(tmp_path)
    assert torch.equal(again(tokens()), model(tokens()))
    assert weight_bytes(again) == weight_bytes(model)
    assert list(generate(again, [1, 2, 3], 4)) == list(generate(model, [1, 2, 3], 4))


def test_damaged_directories_are_one_sentence(tmp_path: Path) -> None:
    model = quantize(made("gated"), "nearest", FOUR)
    save(model, tmp_path, {})
    text = (tmp_path / "quantized.json").read_text()
    for wrong in ("{", "[]", text.replace('"bits": 4', '"bits": 40'), text.replace("layers", "x")):
        (tmp_path / "quantized.json").write_text(wrong)
        with pytest.raises(ValueError, match="cannot be read"):
            load(tmp_path)
    (tmp_path / "quantized.json").write_text(text.replace('"bits": 4', '"bits": 3'))
    with pytest.raises(ValueError, match="does not fit its card"):
        load(tmp_path)
    save(quantize(wide(), "nearest", "q4_k"), tmp_path, {})
    named = (tmp_path / "quantized.json").read_text()
    for wrong, says in (("q4_1", "cannot be read"), ("q8_0", "does not fit its card")):
        (tmp_path / "quantized.json").write_text(named.replace('"q4_k"', f'"{wrong}"'))
        with pytest.raises(ValueError, match=says):
            load(tmp_path)
    save(model, tmp_path, {})
    (tmp_path / "quantized.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match="cannot be read"):
        load(tmp_path)


def test_what_cannot_be_quantized_is_refused() -> None:
    model = made("gated")
    with pytest.raises(ValueError, match="a method is one of"):
        quantize(model, "magic", FOUR)
    with pytest.raises(ValueError, match="calibration windows"):
        quantize(model, "awq", FOUR)
    with pytest.raises(ValueError, match="quantized already"):
        quantize(quantize(model, "nearest", FOUR), "nearest", FOUR)
    for name, says in (("q4_k", "rounded to nearest"), ("q4_k_m", "a named format is one of")):
        with pytest.raises(ValueError, match=says):
            quantize(model, "gptq" if name == "q4_k" else "nearest", name, tokens())
    with pytest.raises(ValueError, match="divide no rows of this model, which have 24, 40 inputs"):
        quantize(model, "nearest", "q4_k")
    with pytest.raises(ValueError, match="quantized already"):
        quantize(quantize(wide(), "nearest", "nf4"), "nearest", FOUR)
    with pytest.raises(ValueError, match="one format"):
        save(model, Path("nowhere"), {})
    with pytest.raises(ValueError, match="windows of 4 tokens, and the text has 3"):
        windows([1, 2, 3], 1, 4)
