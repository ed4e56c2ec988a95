"""Checkpoints: what is saved is what is loaded, and damage is said in one sentence."""

import errno
import hashlib
import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from twophase import models
from twophase.models import checkpoints, corpus
from twophase.models.family import TRAINED
from twophase.models.pruning import directory as pruned
from twophase.models.quantize import directory as quantized
from twophase.models.quantize import quantize
from twophase.models.transformer import Config, Transformer

TINY = Config(L=2, D=8, F=12, N=2, K=1, H=4, V=19)


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(0)
    model = Transformer(TINY)
    checkpoints.save(model, "tiny", {"note": "a test"}, tmp_path)
    return model, tmp_path


def test_a_checkpoint_comes_back_as_it_was_saved_up_to_bf16(saved):
    model, folder = saved
    loaded = checkpoints.load("tiny", folder=folder)
    assert loaded.config == TINY
    for (key, a), b in zip(model.state_dict().items(), loaded.state_dict().values(), strict=True):
        assert torch.equal(a.bfloat16().float(), b), key
    assert loaded.lm_head.weight is loaded.embed_tokens.weight
    assert (
        checkpoints.load("tiny", torch.bfloat16, folder=folder).norm.weight.dtype == torch.bfloat16
    )
    assert checkpoints.available(folder) == ["tiny"]
    assert checkpoints.card("tiny", folder)["note"] == "a test"


def test_saving_what_was_loaded_changes_no_byte(saved):
    _, folder = saved
    before = (folder / "tiny.safetensors").read_bytes()
    checkpoints.save(checkpoints.load("tiny", folder=folder), "tiny", {}, folder)
    assert (folder / "tiny.safetensors").read_bytes() == before


def save_quantized(model: Transformer, folder: Path) -> None:
    quantized.save(quantize(model, "nearest", "q8_0", None), folder, {})


SAVES: dict[str, Callable[[Transformer, Path], object]] = {
    "checkpoint": lambda model, folder: checkpoints.save(model, "tiny", {}, folder),
    "pruned": lambda model, folder: pruned.save(model, folder, {}),
    "quantized": save_quantized,
}


@contextmanager
def no_room_for_weights(_: pytest.MonkeyPatch) -> Iterator[None]:
    """No file may have more than a few bytes: to safetensors the same as a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def no_room_for_cards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def full(path: Path, text: str, **_: object) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        yield


@pytest.mark.parametrize("save", SAVES.values(), ids=SAVES)
@pytest.mark.parametrize("full", [no_room_for_weights, no_room_for_cards])
def test_what_cannot_be_written_leaves_what_was_there_and_nothing_else(
    tmp_path, monkeypatch, save, full
):
    torch.manual_seed(0)
    config = Config(L=2, D=32, F=64, N=2, K=1, H=16, V=19)
    save(Transformer(config), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert {path.stat().st_mode & 0o044 for path in before} == {0o044}  # others may read
    with full(monkeypatch), pytest.raises(OSError, match=r"too large|No space left"):
        save(Transformer(config), tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    save(Transformer(config), tmp_path)
    after = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert after.keys() == before.keys()
    assert after != before


def test_an_unknown_name_lists_the_known_ones(saved):
    with pytest.raises(ValueError, match='unknown model "gpt-5"; known: tiny'):
        checkpoints.load("gpt-5", folder=saved[1])
    with pytest.raises(ValueError, match=r'unknown model "\.\./tiny"'):
        checkpoints.load("../tiny", folder=saved[1])


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_a_truncated_file_is_named_as_damaged(saved, keep):
    path = saved[1] / "tiny.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"tiny\.safetensors are damaged"):
        checkpoints.load("tiny", folder=saved[1])


def test_weights_that_do_not_fit_their_card_are_refused(saved):
    _, folder = saved
    other = Transformer(Config(**{**TINY.to_dict(), "F": 16}))
    checkpoints.save(other, "other", {}, folder)
    shutil.copy(folder / "other.safetensors", folder / "tiny.safetensors")
    with pytest.raises(
        ValueError, match=r"do not fit their card: layers\.0\.mlp\.down_proj\.weight is \[8, 16\]"
    ):
        checkpoints.load("tiny", folder=folder)


def test_one_changed_byte_among_the_weights_is_noticed(saved):
    path = saved[1] / "tiny.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="are not those that their card was written for"):
        checkpoints.load("tiny", folder=saved[1])


def test_every_committed_card_knows_its_weights():
    assert set(TRAINED) == set(checkpoints.available())
    for name in checkpoints.available():
        digest = hashlib.sha256(
            (checkpoints.FOLDER / f"{name}.safetensors").read_bytes()
        ).hexdigest()
        assert checkpoints.card(name)["weights_sha256"] == digest


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        '{"config": {"L": 2, "D": 8, "F": 12, "N": 2, "K": 1, "H": 4, "moe": 3}}',
        '{"config": {"L": 1}}',
        "[]",
    ],
)
def test_a_damaged_card_is_named(saved, text):
    (saved[1] / "tiny.json").write_text(text)
    with pytest.raises(ValueError, match=r"tiny\.json of checkpoint tiny cannot be read"):
        checkpoints.load("tiny", folder=saved[1])


def test_the_trained_model_is_about_a_megabyte_and_says_how_it_came_about():
    card = models.card("gqa")
    path = checkpoints.FOLDER / "gqa.safetensors"
    assert models.load("gqa").n_params == card["n_params"]
    assert path.stat().st_size < 2_000_000
    assert card["corpus_sha256"] == corpus.digest()
    assert set(card["held_out"]).isdisjoint(card["trained_on"])
    assert {
        "recipe",
        "n_tokens",
        "training_s",
        "device",
        "torch",
        "held_out_bits_per_byte",
    } <= card.keys()
    assert json.dumps(card)


def test_the_trained_model_predicts_held_out_python_about_as_well_as_its_card_says():
    from twophase.models.evaluate import bits_per_byte

    data = corpus.load("held_out")
    sample = data[len(data) // 2 :][
        : 64 * 256 + 1
    ]  # 16 kB from the middle: the card's number is the mean of 2.2 MB
    assert bits_per_byte(models.load("gqa"), sample) == pytest.approx(
        models.card("gqa")["held_out_bits_per_byte"], abs=0.5
    )
