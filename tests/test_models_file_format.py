"""A file holds what is measured and what is loaded, in bf16 or as 8-bit integers."""

import hashlib
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from twophase.models import checkpoints
from twophase.models.config import Config
from twophase.models.file_format import SCALES, as_saved, from_file, to_file
from twophase.models.transformer import Transformer

TINY = Config(L=2, D=8, F=13, N=2, K=1, H=6, V=19)
UNTIED = Config(L=1, D=8, F=12, N=2, K=1, H=4, V=19, tied=False)


def made(config: Config) -> Transformer:
    torch.manual_seed(0)
    return Transformer(config)


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("config", [TINY, UNTIED], ids=["tied", "untied"])
def test_what_is_measured_is_what_is_loaded(tmp_path, config, int8):
    model = made(config)
    checkpoints.save(model, "tiny", {}, tmp_path, int8)
    loaded = checkpoints.load("tiny", folder=tmp_path).state_dict()
    for key, value in as_saved(model, int8).state_dict().items():
        assert torch.equal(value, loaded[key]), key
        assert torch.equal(value, value.bfloat16().float()), key
    assert not torch.equal(
        loaded["layers.0.mlp.up_proj.weight"], model.layers[0].mlp.up_proj.weight
    )


def test_a_code_stands_for_its_weight_within_half_a_step_of_its_row_and_vectors_are_bf16():
    model = made(TINY)
    saved = as_saved(model, int8=True).state_dict()
    for key, value in model.state_dict().items():
        if value.ndim == 2:
            step = value.abs().amax(1, keepdim=True) / 127
            error = step / 2 + value.abs() / 2**8  # the latter is bf16's
            assert ((saved[key] - value).abs() <= error * (1 + 1e-6)).all(), key
        else:
            assert torch.equal(saved[key], value.bfloat16().float()), key


def test_eight_bits_take_half_the_bytes_of_bf16_but_for_the_scales():
    model = made(Config(L=2, D=64, F=128, N=2, K=1, H=32, V=19))
    wide, narrow = (sum(t.nbytes for t in to_file(model, int8).values()) for int8 in (False, True))
    rows = sum(t.shape[0] for k, t in model.state_dict().items() if t.ndim == 2 and "lm" not in k)
    vectors = sum(t.numel() for t in model.state_dict().values() if t.ndim == 1)
    assert narrow == (wide - 2 * vectors) / 2 + 4 * rows + 2 * vectors


@pytest.mark.parametrize("spoil", ["missing", "short", "wide"])
def test_codes_whose_scales_do_not_fit_are_refused(tmp_path, spoil):
    path = checkpoints.save(made(TINY), "tiny", {}, tmp_path, int8=True)
    state = load_file(path)
    key = "layers.0.mlp.up_proj.weight"
    if spoil == "missing":
        del state[key + SCALES]
    elif spoil == "short":
        state[key + SCALES] = state[key + SCALES][1:].contiguous()
    else:
        state[key + SCALES] = state[key + SCALES].double()
    save_file(state, path)
    card = json.loads(path.with_suffix(".json").read_text())
    card["weights_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_suffix(".json").write_text(json.dumps(card))
    with pytest.raises(ValueError, match=r"are damaged|do not fit their card"):
        checkpoints.load("tiny", folder=tmp_path)


def test_weights_that_are_not_finite_are_not_written(tmp_path):
    model = made(TINY)
    with torch.no_grad():
        model.layers[0].mlp.up_proj.weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match="finite"):
        checkpoints.save(model, "tiny", {}, tmp_path, int8=True)


def test_bf16_passes_as_it_is():
    state = to_file(made(TINY))
    assert all(from_file(state)[key] is value for key, value in state.items())
