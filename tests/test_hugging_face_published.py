"""Published config.json files are taken as they are, count as many parameters as transformers
counts, and on a small scale give transformers' logits, however the tokens are fed, and its tokens.
"""

import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hugging_face_conflicts import judge, save_weights, their_model
from hugging_face_models import (
    MARGIN,
    STEPS,
    TOLERANCE,
    continued,
    disagreement,
    fed_in_blocks,
    greedy,
    ragged_disagreement,
)
from hugging_face_published import PUBLISHED, V, shrunk

from twophase.models import hugging_face
from twophase.models.hugging_face.config import WITH_IMAGES
from twophase.models.hugging_face.families import FAMILIES

B, T = 3, 13  # a prompt: longer than every small window


def quietly_read(config: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return hugging_face.read_config(config)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_are_taken_without_a_remark_and_give_the_published_sizes(name):
    config = quietly_read(PUBLISHED[name]["config"])
    assert config.architecture().n_params() == PUBLISHED[name]["n_params"]


def test_there_are_published_configs_of_every_type_that_is_read():
    types = [known["config"]["model_type"] for known in PUBLISHED.values()]
    assert set(types) == {*FAMILIES, *WITH_IMAGES}
    assert len(types) >= 43
    asked = [json.dumps(known["config"], sort_keys=True) for known in PUBLISHED.values()]
    assert len(set(asked)) == len(asked)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_small_scale_keeps_every_key_and_every_value_that_is_no_size(name):
    published = PUBLISHED[name]["config"]
    small = shrunk(published)
    assert published.keys() <= small.keys()
    for key, value in published.items():
        if value is None or isinstance(value, (bool, str)):
            assert small[key] == value, key
    ours, theirs = quietly_read(small), quietly_read(published)
    assert (ours.G, ours.K == 1, ours.tied) == (theirs.G, theirs.K == 1, theirs.tied)
    assert (ours.N * ours.H == ours.D or bool(ours.mla)) == (
        theirs.N * theirs.H == theirs.D or bool(theirs.mla)
    )
    assert set(ours.mixers) == set(theirs.mixers)
    assert ours.mixers == theirs.mixers[: ours.L]
    assert (ours.moe is None) == (theirs.moe is None)
    assert ours.window is None or ours.window < T


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_on_a_small_scale_give_the_logits_of_transformers(name, tmp_path):
    verdict = judge(shrunk(PUBLISHED[name]["config"]), tmp_path)
    assert (verdict.refused, verdict.theirs_failed) == ("", "")
    assert verdict.difference < TOLERANCE


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A published model on a small scale, read by us, and what transformers continues it with."""

    @cache
    def make(name: str) -> Any:
        folder: Path = tmp_path_factory.mktemp("published")
        (folder / "config.json").write_text(json.dumps(shrunk(PUBLISHED[name]["config"])))
        theirs = their_model(folder)
        save_weights(theirs, folder)
        generator = torch.Generator().manual_seed(11)
        prompt = torch.randint(0, V, (B, T), generator=generator)  # [B, T]
        return hugging_face.load(folder), *continued(theirs, prompt)

    return make


@pytest.mark.more
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_agree_with_transformers_through_caches_and_in_ragged_batches(name, made):
    ours, tokens, logits = made(name)
    total = tokens.shape[1]
    for blocks in [total], [1] * total, [5, 1, 8, 2, total - 16]:
        assert disagreement(fed_in_blocks(ours, tokens, blocks), logits) < TOLERANCE
    assert ragged_disagreement(ours, tokens, logits, [total - 3, 4, 1]) < TOLERANCE


@pytest.mark.more
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_give_the_greedy_tokens_of_transformers_up_to_a_tie(name, made):
    ours, tokens, logits = made(name)
    written, _ = greedy(ours, tokens[:, :T], STEPS)
    for b in range(B):
        other = (written[b] != tokens[b]).nonzero()  # [differences, 1]
        if len(other):
            best = logits[b, int(other[0]) - 1].topk(2).values  # where the first of them was chosen
            assert (best[0] - best[1]) / logits[b, int(other[0]) - 1].std() < MARGIN


@pytest.mark.more
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PUBLISHED)
def test_transformers_counts_the_published_number_of_parameters(name, tmp_path):
    from transformers import AutoConfig, AutoModelForCausalLM

    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED[name]["config"]))
    config = AutoConfig.from_pretrained(tmp_path).get_text_config()
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    corrections = [b for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")]
    counted = model.num_parameters() + sum(b.numel() for b in corrections)
    assert counted == PUBLISHED[name]["n_params"]
