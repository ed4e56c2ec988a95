"""Bad input to models, to what prunes, drafts and trains them, is one sentence, and never an answer
that is wrong without a word."""

import math

import numpy as np
import pytest
import torch

from twophase.kernels.span import Span
from twophase.measure.fit import fit_seconds, non_negative
from twophase.measure.serving_runs import least_misses
from twophase.models.config import Config
from twophase.models.diffusion import bound_bits_per_byte, complete
from twophase.models.generate import generate
from twophase.models.pruning import channels_going, importance, keep_best, silenced
from twophase.models.quantize.calibration import watch, windows
from twophase.models.recipe import Recipe, batch
from twophase.models.speculative_decoding.acceptance import acceptance_rate, sample_batch
from twophase.models.step import PassKV
from twophase.models.transformer import Transformer

SMALL = Transformer(Config(L=2, D=8, N=2, K=1, H=4, F=8, V=16)).eval().requires_grad_(False)
TOKENS = torch.randint(16, (2, 6))
DATA = np.arange(200, dtype=np.uint8)


def test_tokens_elsewhere_are_not_read_as_zeros():
    with pytest.raises(ValueError, match="tokens on meta for a model on cpu"):
        SMALL(TOKENS.to("meta"))


@pytest.mark.parametrize("causal", [True, False])
def test_each_token_of_a_pass_without_a_cache_has_a_query(causal):
    store, span = PassKV(causal), Span.of(1, 3)
    store.write(torch.randn(1, 3, 2, 8), torch.randn(1, 3, 2, 8), span)
    with pytest.raises(ValueError, match=r"a pass of \[1, 3\] tokens has queries"):
        store.attend(torch.randn(1, 2, 4, 8), span)


@pytest.mark.parametrize("top_k", [1.5, math.nan, True, "3"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_number_of_best_tokens_is_whole_at_every_temperature(top_k, temperature):
    with pytest.raises(ValueError, match="top_k keeps at least one token"):
        next(iter(generate(SMALL, [1, 2], 2, temperature=temperature, top_k=top_k)))


@pytest.mark.parametrize(
    "parts",
    [
        {"layers": [-1]},
        {"layers": [2]},
        {"heads": {-1: [0]}},
        {"heads": {0: [2]}},
        {"channels": {0: [8]}},
        {"channels": {0: [-1]}},
        {"channels": {2: [0]}},
    ],
)
def test_only_parts_that_there_are_can_be_silenced(parts):
    with (
        pytest.raises(ValueError, match=r"is a whole number|counted from 0, and none"),
        silenced(SMALL, **parts),
    ):
        pass
    with pytest.raises(ValueError, match="is a whole number"):
        channels_going(SMALL, TOKENS, -1, [0], [1])


@pytest.mark.parametrize(
    ("unit", "scores", "says"),
    [
        ("nonsense", torch.rand(2), "a unit is one of"),
        ("layers", torch.rand(3), r"have scores \[2\]"),
        ("channels", torch.rand(2, 9), r"have scores \[2, 8\]"),
        ("layers", [0.5, 0.5], r"have scores \[2\]"),
    ],
)
def test_what_stays_is_chosen_by_scores_of_this_model(unit, scores, says):
    with pytest.raises(ValueError, match=says):
        keep_best(SMALL, scores, unit, 1)


@pytest.mark.parametrize("skip", [-1, 6, None, True, 1.5])
def test_a_mean_over_no_prefixes_is_refused(skip):
    with pytest.raises(ValueError, match=r"to skip is a whole number|no prefix is left"):
        acceptance_rate(SMALL, SMALL, TOKENS, skip)
    with pytest.raises(ValueError, match="new tokens is a whole number"):
        sample_batch(SMALL, TOKENS, -1, torch.Generator())


@pytest.mark.parametrize("count", [-1, 0, 1.5, True])
def test_windows_come_in_whole_numbers(count):
    for ask in (
        lambda: batch(DATA, 0, count, 8, 1),
        lambda: batch(DATA, 0, 2, count, 1),
        lambda: windows(DATA, 2, count),
        lambda: watch(SMALL, ["layers.0.mlp.down_proj"], TOKENS, count),
        lambda: Recipe(B=count),
        lambda: Recipe(n_tokens=count),
        lambda: Recipe().steps(count),
        lambda: bound_bits_per_byte(SMALL, DATA, B=count),
    ):
        with pytest.raises(ValueError, match="is a whole number of at least 1"):
            ask()


def test_nothing_is_calibrated_on_no_tokens():
    with pytest.raises(ValueError, match="calibration needs some tokens"):
        watch(SMALL, ["layers.0.mlp.down_proj"], TOKENS[:0])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_no_fit_is_of_numbers_that_are_none(bad):
    with pytest.raises(ValueError, match="NaN or infinite: leave that point out"):
        fit_seconds({"a": [1.0, bad, 3.0]}, [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="all positive and finite"):
        fit_seconds({"a": [1.0, 2.0, 3.0]}, [1.0, bad, 3.0])
    with pytest.raises(ValueError, match="Least squares are of finite numbers"):
        non_negative(np.array([[1.0, bad], [1.0, 2.0]]), np.ones(2))


@pytest.mark.parametrize("tokens", [TOKENS[:0], TOKENS[0], TOKENS[:, :1], TOKENS.int()])
def test_nothing_is_measured_on_no_tokens(tokens):
    with pytest.raises(ValueError, match="a calibration set is of tokens"):
        importance(SMALL, tokens, "layers", "leave_one_out")


@pytest.mark.parametrize("size", [1.5, True, "2", 2.0])
def test_a_model_has_whole_sizes(size):
    sizes = {"L": 2, "D": 8, "N": 2, "K": 2, "H": 4, "F": 8, "V": 16}
    for name in sizes:
        with pytest.raises(ValueError, match="must be at least 1, a whole number"):
            Config(**{**sizes, name: size})


@pytest.mark.parametrize("count", [1.5, math.nan, True])
def test_text_is_unmasked_in_whole_steps(count):
    reads_both_ways = Transformer(Config(L=1, D=8, N=2, K=1, H=4, F=8, V=17, causal=False)).eval()
    for options in {"n_new": count}, {"n_steps": count}, {"block": count}:
        with pytest.raises(ValueError, match="n_new, n_steps and block are whole numbers"):
            complete(reads_both_ways, [1], **{"n_new": 4, "n_steps": 4, **options})
    with pytest.raises(ValueError, match="is no text"):
        complete(reads_both_ways, [1.5], 4, 4)


@pytest.mark.parametrize(
    ("floors", "seconds"),
    [([1.0], [2.0, 3.0]), ([1.0, 1.0], [2.0, math.nan]), ([1.0] * 2, [2.0, 0])],
)
def test_costs_are_of_runs_that_took_some_time(floors, seconds):
    with pytest.raises(ValueError, match=r"every run has terms|a positive number of seconds"):
        least_misses([[1.0], [2.0]], floors, seconds)


@pytest.mark.parametrize("cache", ["x", 3, {}])
def test_what_is_no_cache_no_tree_and_no_sequence_is_said(cache):
    with pytest.raises(ValueError, match="a cache comes from `new_cache`"):
        SMALL(TOKENS, cache)
    with pytest.raises(ValueError, match=r"a tree of 6 tokens is a bool tensor \[6, 6\]; got list"):
        SMALL(TOKENS, SMALL.new_cache(2, 8), tree=[[True]])
    with pytest.raises(ValueError, match="at least one sequence; got none"):
        SMALL(TOKENS[:0])
