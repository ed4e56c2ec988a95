"""A file holds what is measured and what is loaded, in bf16 or as 8-bit integers."""

import hashlib
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from twophase.models import checkpoints
from twophase.models.config import Config
from twophase.models.family import FAMILY
from twophase.models.file_format import SCALES, as_saved, from_file, to_file
from twophase.models.transformer import Transformer
from twophase.parallel.weights import CourseFile

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


SPOILT = {
    "no scales": (lambda c, s: (c, None), "holds integers without scales"),
    "too few scales": (lambda c, s: (c, s[1:].contiguous()), "have scales"),
    "wide scales": (lambda c, s: (c, s.double()), "have scales"),
    "a scale that is none": (lambda c, s: (c, s.fill_(float("nan"))), "not finite"),
    "scales too large": (lambda c, s: (c, s.fill_(3e38)), "not finite"),
    "a row of codes": (lambda c, s: (c[0].contiguous(), s), r"codes are uint8 \[outputs, inputs\]"),
    "other codes": (lambda c, s: (c.short(), s), "codes are uint8"),
}


@pytest.mark.parametrize("spoil", SPOILT)
def test_codes_whose_scales_do_not_fit_are_refused_in_a_sentence(tmp_path, spoil):
    path = checkpoints.save(made(TINY), "tiny", {}, tmp_path, int8=True)
    state, key = load_file(path), "layers.0.mlp.up_proj.weight"
    change, message = SPOILT[spoil]
    state[key], scales = change(state[key], state.pop(key + SCALES))
    if scales is not None:
        state[key + SCALES] = scales
    save_file(state, path)
    card = json.loads(path.with_suffix(".json").read_text())
    card["weights_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_suffix(".json").write_text(json.dumps(card))
    with pytest.raises(ValueError, match=f"are damaged.*{message}"):
        checkpoints.load("tiny", folder=tmp_path)


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("key", ["layers.0.mlp.up_proj.weight", "norm.weight"])
@pytest.mark.parametrize("number", [float("nan"), 3.4e38])  # bf16 has no number so large
def test_weights_that_are_not_finite_are_not_written(tmp_path, key, number, int8):
    model = made(TINY)
    with torch.no_grad():
        model.state_dict()[key].view(-1)[0] = number
    with pytest.raises(ValueError, match=f"{key} has numbers that are not finite"):
        checkpoints.save(model, "tiny", {}, tmp_path, int8)
    assert not list(tmp_path.iterdir())


def test_only_matrices_of_attention_and_mlps_become_integers():
    with pytest.raises(ValueError, match="write it in bf16"):
        to_file(made(FAMILY["ssm"]), int8=True)
    with pytest.raises(ValueError, match="write it in bf16"):
        to_file(made(FAMILY["moe"]), int8=True)


@pytest.mark.parametrize("name", checkpoints.available())
def test_a_rank_reads_the_boxes_of_what_is_loaded(name):
    source, whole = CourseFile(name), checkpoints.load(name).state_dict()
    assert (source.dtype, source.config) == (
        torch.float32,
        Config(**checkpoints.card(name)["config"]),
    )
    for key, value in whole.items():
        boxes = [[], [(0, 1, 3)]]
        if value.ndim == 2:  # a convolution's middle axis has one number
            boxes += [[(1, 2, 4)], [(0, 0, 2), (1, 1, 4)]]
        for box in boxes:
            part = value
            for axis, start, stop in box:
                part = part.narrow(axis, start, stop - start)
            assert torch.equal(source.read(key, *box), part), (key, box)


def test_a_rank_refuses_codes_without_scales(tmp_path):
    path = checkpoints.save(made(TINY), "tiny", {}, tmp_path, int8=True)
    key = "layers.0.mlp.up_proj.weight"
    save_file({k: t for k, t in load_file(path).items() if k != key + SCALES}, path)
    with pytest.raises(ValueError, match=f"{key} in tiny holds integers without scales"):
        CourseFile("tiny", tmp_path).read(key)


def test_bf16_passes_as_it_is():
    state = to_file(made(TINY))
    assert all(from_file(state)[key] is value for key, value in state.items())
