"""Weights are read, once and whole or the asked part only, into memory that no file can change."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from draws import draws
from hugging_face_conflicts import plain, their_model
from hugging_face_folders import SIZES, build, change_json, save
from hugging_face_models import TOLERANCE, disagreement
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from twophase.models import hugging_face
from twophase.models.blank import blank
from twophase.models.hugging_face import weights
from twophase.models.hugging_face.reader import Reader, box_of
from twophase.models.hugging_face.shards import SINGLE, Stored, read_headers

WIDE = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 4}
TOKENS = torch.arange(30)[None] * 7 % 97  # [1, T]
HEADER = 40_000  # bytes of index and headers of these files, read several times, and then some


def status(key: str, file: str = "status", unit: int = 1024) -> int:
    """A number of this process, from the kernel."""
    return int(re.search(rf"{key}:\s+(\d+)", Path(f"/proc/self/{file}").read_text())[1]) * unit


def bytes_read() -> int:
    """Bytes that this process has read from files so far, through whatever call but a map."""
    return status("rchar", "io", 1)


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="Linux says what memory is whose"
)


def large(folder: Path, family: str, **more: Any) -> int:
    """A bf16 checkpoint of ones in one file, experts one by one; returns its bytes."""
    config = SIZES[family] | WIDE | {"model_type": family} | more
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {}
    for name, value in blank(hugging_face.read_config(config)).state_dict().items():
        key = name if name.startswith("lm_head") else f"model.{name}"
        parts = {key: value}
        if ".experts." in name:
            parts = {
                key.replace("experts.", f"experts.{e}.") + ".weight": value[e]
                for e in range(value.shape[0])
            }
        tensors |= {k: torch.ones(v.shape, dtype=torch.bfloat16) for k, v in parts.items()}
    save_file(tensors, folder / SINGLE)
    return (folder / SINGLE).stat().st_size


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(build("llama"), tmp_path_factory.mktemp("llama"), max_shard_size="1GB")


def copied(folder: Path, target: Path) -> Path:
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


# Memory


@needs_proc
@pytest.mark.parametrize(
    ("family", "more"), [("llama", {}), ("mixtral", {"intermediate_size": 600})]
)
def test_weights_are_held_once_while_they_are_read_and_after(family, more, tmp_path):
    size = large(tmp_path, family, **more)
    hugging_face.load(tmp_path)  # whatever torch allocates the first time
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is there now
    before = status("VmRSS")
    model = hugging_face.load(tmp_path)
    assert status("VmHWM") - before < 1.3 * size
    assert all(float(p.float().mean()) == 1 for p in model.parameters())


def test_a_file_that_changes_or_ends_after_loading_changes_nothing(llama, tmp_path):
    folder = copied(llama, tmp_path)
    model = hugging_face.load(folder)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with (folder / SINGLE).open("r+b") as file:  # in place, as a download over it writes
        file.write(b"\xff" * (folder / SINGLE).stat().st_size)
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
    (folder / SINGLE).write_bytes(b"")  # what is mapped and gone would now kill this process
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)


def test_a_file_that_changes_between_its_header_and_its_weights_is_named(llama, tmp_path):
    folder = copied(llama, tmp_path)
    opened = hugging_face.open_checkpoint(folder)
    opened.load()
    tensors = {key: value + 1 for key, value in load_file(folder / SINGLE).items()}
    save_file(tensors, folder / SINGLE)  # as many bytes as before
    with pytest.raises(
        ValueError, match=r"model\.safetensors has changed since its header was read"
    ):
        opened.load()
    stored = next(iter(read_headers(folder).values()))
    beyond = replace(stored, offset=(folder / SINGLE).stat().st_size - 4)
    with pytest.raises(ValueError, match="was cut off while x was read"):
        Reader().read("x", beyond, box_of(stored.shape))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    "key", ["model.embed_tokens.weight", "model.layers.1.mlp.down_proj.weight"]
)
def test_a_weight_that_is_no_number_is_found_when_loading_and_its_tensor_named(
    key, value, llama, tmp_path
):
    folder = copied(llama, tmp_path)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        tensors = {name: tensor.to(dtype) for name, tensor in load_file(llama / SINGLE).items()}
        tensors[key].view(-1)[-1] = value
        save_file(tensors, folder / SINGLE)
        said = f"{key} holds NaN or infinity as {str(dtype).removeprefix('torch.')}"
        with pytest.raises(ValueError, match=re.escape(said)) as caught:
            hugging_face.load(folder)
        assert "\n" not in str(caught.value)


@draws(60)
@given(
    n=st.integers(1, 5000),
    at=st.integers(0, 4999),
    odd=st.sampled_from([float("nan"), float("inf"), -float("inf")]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
def test_a_weight_that_is_no_number_is_found_wherever_it_stands(n, at, odd, dtype):
    stored = Stored(Path("file"), (n,), "F32", 0, (0, 0))
    tensor = torch.randn(n).to(dtype)
    weights.check_finite(tensor, "x", stored)
    tensor[at % n] = odd
    with pytest.raises(ValueError, match="file: x holds NaN or infinity"):
        weights.check_finite(tensor, "x", stored)


def test_a_weight_too_large_for_the_dtype_that_is_asked_for_is_named(llama, tmp_path):
    folder = copied(llama, tmp_path)
    tensors = load_file(folder / SINGLE)
    tensors["model.norm.weight"][3] = 70_000.0
    save_file(tensors, folder / SINGLE)
    assert float(hugging_face.load(folder).norm.weight.max()) == 70_000.0
    with pytest.raises(ValueError, match=r"model\.norm\.weight holds NaN or infinity as float16"):
        hugging_face.load(folder, dtype=torch.float16)


@pytest.mark.parametrize("row", [0, 199, 399])
def test_a_second_head_that_differs_in_one_row_is_found_reading_a_few_rows_at_a_time(
    row, llama, tmp_path, monkeypatch
):
    folder = copied(llama, tmp_path)
    change_json(folder / "config.json", tie_word_embeddings=True)
    monkeypatch.setattr(weights, "PIECE_BYTES", 1000)
    tensors = load_file(llama / SINGLE)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / SINGLE)
    assert hugging_face.open_checkpoint(folder).config.tied
    tensors["lm_head.weight"][row, 5] += 1
    save_file(tensors, folder / SINGLE)
    with pytest.raises(ValueError, match=r"another lm_head\.weight: set it to false"):
        hugging_face.open_checkpoint(folder)


# Slices


@draws(40)
@given(data=st.data(), shape=st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_a_slice_is_what_safetensors_cuts_out_itself(data, shape, tmp_path_factory):
    folder = tmp_path_factory.mktemp("slices")
    dtype = data.draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    axis = data.draw(st.integers(0, len(shape) - 1))
    start = data.draw(st.integers(0, shape[axis] - 1))
    stop = data.draw(st.integers(start + 1, shape[axis]))
    save_file({"a": torch.zeros(3), "x": torch.randn(shape).to(dtype)}, folder / SINGLE)
    with safe_open(folder / SINGLE, framework="pt") as file:
        theirs = file.get_slice("x")[(*(slice(None),) * axis, slice(start, stop))]
    found = hugging_face.read_tensors(folder, {"x": (axis, start, stop), "a": None})
    assert torch.equal(found["x"], theirs)
    assert found["x"].dtype == dtype
    assert torch.equal(found["a"], torch.zeros(3))


@pytest.mark.parametrize("part", [(2, 0, 1), (-1, 0, 1), (0, 3, 3), (0, 0, 401), (1, -1, 4)])
def test_a_slice_beyond_the_tensor_is_refused(part, llama):
    with pytest.raises(
        ValueError, match=r"no slice \(axis, start, stop\) = .* of shape \[400, 32\]"
    ):
        hugging_face.read_tensors(llama, {"lm_head.weight": part})
    with pytest.raises(ValueError, match="holds no tensor 'head'"):
        hugging_face.read_tensors(llama, {"head": None})
    with pytest.raises(ValueError, match="has no parameter 'head'"):
        hugging_face.open_checkpoint(llama).read("head")


@needs_proc
@pytest.mark.parametrize("part", [(0, 100, 200), (1, 40, 140), None])
def test_no_byte_beside_a_slice_is_read(part, tmp_path):
    large(tmp_path, "llama")
    key, before = "model.layers.2.mlp.up_proj.weight", bytes_read()
    found = hugging_face.read_tensors(tmp_path, {key: part})[key]
    assert found.nbytes <= bytes_read() - before < found.nbytes + HEADER


@pytest.mark.parametrize("packed", [False, True], ids=["one by one", "packed"])
@pytest.mark.parametrize("family", ["mixtral", "gemma2", "deepseek_v3"])
def test_every_slice_of_every_parameter_is_that_of_the_model(family, packed, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(plain(family)))
    theirs = their_model(tmp_path)
    if packed:  # transformers keeps experts stacked, and unpacks them when it saves
        tensors = {key: value.contiguous() for key, value in theirs.state_dict().items()}
        if theirs.config.tie_word_embeddings:
            del tensors["lm_head.weight"]
        save_file(tensors, tmp_path / SINGLE)
    else:
        theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    opened = hugging_face.open_checkpoint(tmp_path)
    model = opened.load()
    assert disagreement(model(TOKENS), theirs(TOKENS, use_cache=False).logits) < TOLERANCE
    for name, whole in model.state_dict().items():
        assert torch.equal(opened.read(name), whole)
        for axis, n in enumerate(whole.shape):
            part = (axis, n // 3, max(2 * n // 3, n // 3 + 1))
            assert torch.equal(
                opened.read(name, part), whole.narrow(axis, part[1], part[2] - part[1])
            )


@needs_proc
def test_experts_outside_of_a_slice_are_not_read(tmp_path):
    large(tmp_path, "mixtral", intermediate_size=600)
    opened = hugging_face.open_checkpoint(tmp_path)
    before = bytes_read()
    found = opened.read("layers.1.mlp.experts.up_proj", (0, 1, 3))
    assert found.shape == (2, 600, 512)
    assert found.nbytes <= bytes_read() - before < found.nbytes + HEADER


# Some layers


KEPT = [range(1, 3), range(1), [0, 2], [1]]


@pytest.mark.parametrize("layers", KEPT, ids=str)
@pytest.mark.parametrize(
    "family", ["llama", "qwen2", "gemma2", "gemma3_text", "mixtral", "deepseek_v3"]
)
def test_some_layers_are_the_model_of_transformers_without_the_others(family, layers, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(plain(family)))
    theirs = their_model(tmp_path)
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    ours = hugging_face.load(tmp_path, layers=layers)
    theirs.model.layers = torch.nn.ModuleList(theirs.model.layers[i] for i in layers)
    theirs.config.num_hidden_layers = len(layers)
    if kinds := getattr(theirs.config, "layer_types", None):
        theirs.config.layer_types = [kinds[i] for i in layers]
    assert disagreement(ours(TOKENS), theirs(TOKENS, use_cache=False).logits) < TOLERANCE
    assert ours.n_params == ours.config.architecture().n_params()


@needs_proc
def test_layers_that_are_left_out_are_not_read(tmp_path):
    size, opened = large(tmp_path, "llama"), hugging_face.open_checkpoint(tmp_path, range(2, 3))
    before = bytes_read()
    model = opened.load()
    used = sum(p.nbytes for p in model.parameters())
    assert used <= bytes_read() - before < used + HEADER
    assert used < size / 3


@pytest.mark.parametrize("layers", [[], [1, 0], [0, 0], [2], [-1], range(0, 3)])
def test_layers_that_are_none_of_the_model_are_refused(layers, llama):
    with pytest.raises(ValueError, match="layers must be numbers from 0 to 1, each larger than"):
        hugging_face.load(llama, layers=layers)


def test_files_of_other_layers_need_not_be_there(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(plain("mixtral")))
    their_model(tmp_path).save_pretrained(tmp_path, max_shard_size="4KB")
    whole = hugging_face.load(tmp_path, layers=[0, 2])
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    needed = {file for key, file in index.items() if ".layers.1." not in key}
    others = set(index.values()) - needed
    assert others
    for name in others:
        (tmp_path / name).unlink()
    part = hugging_face.load(tmp_path, layers=[0, 2])
    assert torch.equal(part(TOKENS), whole(TOKENS))
    with pytest.raises(ValueError, match=f"names the shard {min(others)}, which is not there"):
        hugging_face.load(tmp_path)


def test_a_parameter_that_is_missing_has_the_number_of_its_layer_in_the_files(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(plain("llama")))
    model = their_model(tmp_path)
    weights = dict(model.state_dict())
    del weights["model.layers.2.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"do not hold layers\.2\.mlp\.up_proj\.weight"):
        hugging_face.load(tmp_path, layers=[2])
