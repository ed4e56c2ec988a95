"""The oracle can fail: a model with one thing wrong in its Config disagrees with transformers by
far more than allowed.

Each mutant has the weights of the model that agrees, and one changed setting. A setting whose
change went unnoticed here would be one that the oracle's cases do not test.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hugging_face_models import TOLERANCE, Reference, disagreement, fed_in_blocks, made

from twophase.kernels.local_attention import RingKVCache as Ring
from twophase.models import stores
from twophase.models.transformer import Config, Transformer

FAR = (
    20 * TOLERANCE
)  # the subtlest mutant, an approximate gelu for the exact one, is not far beyond
LAST = 8  # tokens that mutants decode one by one


def mutant(model: Transformer, **changes: Any) -> Transformer:
    """The same weights under another Config; changes of a record's fields are written
    record__field."""
    flat = {key: value for key, value in changes.items() if "__" not in key}
    for key in changes.keys() - flat.keys():
        record, name = key.split("__")
        flat[record] = replace(
            flat.get(record, getattr(model.config, record)), **{name: changes[key]}
        )
    changed = Transformer(Config(**{**vars(model.config), **flat})).eval().requires_grad_(False)
    changed.load_state_dict(
        model.state_dict(), strict=False
    )  # what a mutant has no place for is left out
    return changed


# The case, and what is wrong with the mutant.
MUTATIONS: list[tuple[str, dict[str, Any]]] = [
    ("llama-2", {"rope_theta": 12_000.0}),
    ("llama-2", {"rope_pairing": "interleaved"}),
    ("llama-2", {"rotary_dim": 6}),
    ("llama-2", {"norm_eps": 1e-5}),
    ("llama-2", {"activation": "gelu"}),
    ("llama-2", {"score_scale": 1.02 / 8**0.5}),
    ("llama-2", {"score_cap": 50.0}),
    ("llama-2", {"attention": "sliding", "window": 60}),
    ("llama-2", {"tied": True}),
    ("llama-biases", {"qkv_bias": False}),
    ("llama-biases", {"o_bias": False}),
    ("llama-biases", {"mlp_bias": False}),
    ("llama-3", {"rope_scaling": None}),
    ("llama-3", {"rope_scaling__factor": 7.0}),
    ("llama-3", {"rope_scaling__low_freq_factor": 1.2}),
    ("llama-3", {"rope_scaling__high_freq_factor": 5.0}),
    ("llama-3", {"rope_scaling__original_context": 128}),
    ("llama-linear", {"rope_scaling__factor": 4.1}),
    ("llama-yarn", {"rope_scaling__attention_factor": None}),
    ("llama-yarn", {"rope_scaling__truncate": True}),
    ("llama-yarn", {"rope_scaling__beta_fast": 3.0}),
    ("llama-yarn", {"rope_scaling__beta_slow": 1.0}),
    ("llama-yarn", {"activation": "gelu_tanh"}),
    ("mistral", {"window": 4}),
    ("mistral", {"window": 6}),
    ("mistral-window-1", {"window": 2}),
    ("mistral-window-is-prompt", {"window": 12}),
    ("mistral-window-is-prompt", {"window": 14}),
    ("mistral-no-window", {"attention": "sliding", "window": 76}),
    ("qwen2", {"qkv_bias": False}),
    ("qwen2-windowed", {"attention": ("sliding", "sliding", "gqa", "gqa")}),
    ("qwen2-windowed", {"attention": ("gqa", "gqa", "gqa", "sliding")}),
    ("qwen3", {"qk_norm": False}),
    ("qwen3-yarn", {"rope_scaling__attention_factor": 1.0}),
    ("gemma-2", {"norm_offset": 0.0}),
    ("gemma-2", {"norms_per_layer": 2}),
    ("gemma-2", {"embedding_scale": 1.0}),
    ("gemma-2", {"score_scale": None}),
    ("gemma-2", {"score_cap": None}),
    ("gemma-2", {"score_cap": 1.6}),
    ("gemma-2", {"logit_cap": None}),
    ("gemma-2", {"logit_cap": 4.1}),
    ("gemma-2", {"window": 4}),
    ("gemma-2", {"window": 6}),
    ("gemma-2", {"attention": ("gqa", "sliding", "gqa")}),
    ("gemma-2", {"activation": "silu"}),
    ("gemma-3", {"local_rope_theta": None}),
    ("gemma-3", {"local_rope_theta": 120.0}),
    ("gemma-3", {"rope_theta": 10_000.0}),
    ("gemma-3", {"rope_scaling": None}),
    ("gemma-3", {"qk_norm": False}),
    ("mixtral", {"routing__normalize": False}),
    ("mixtral", {"routing__score": "sigmoid"}),
    ("mixtral", {"moe__k": 3}),
    ("qwen3-moe", {"routing__normalize": True}),
    ("qwen3-moe-normalized", {"routing__normalize": False}),
    ("qwen3-moe-normalized", {"routing__scale": 1.05}),
    ("deepseek-v2-lite", {"score_scale": None}),
    ("deepseek-v2-lite", {"rope_pairing": "half"}),
    ("deepseek-v2-lite", {"rope_scaling__mscale": 1.0}),
    ("deepseek-v2", {"routing__groups_kept": 4}),
    ("deepseek-v2", {"routing__groups_kept": 3}),
    ("deepseek-v2", {"routing__group_top": 2}),
    ("deepseek-v2", {"routing__scale": 1.0}),
    ("deepseek-v2", {"routing__normalize": True}),
    ("deepseek-v2", {"moe__n_shared": 0}),
    ("deepseek-v2", {"rope_scaling__mscale_all_dim": 1.0}),
    ("deepseek-v3", {"routing__score": "softmax"}),
    ("deepseek-v3", {"routing__normalize": False}),
    ("deepseek-v3", {"routing__scale": 2.4}),
    ("deepseek-v3", {"routing__group_top": 1}),
    ("deepseek-v3", {"routing__groups_kept": 3}),
    ("deepseek-v3", {"moe__router_bias": False}),
    ("deepseek-v3", {"score_scale": None}),
    ("deepseek-v3-plain", {"rope_pairing": "interleaved"}),
    ("deepseek-v3-plain", {"routing__normalize": True}),
]


@pytest.mark.parametrize("name", dict.fromkeys(name for name, _ in MUTATIONS))
def test_the_same_config_built_the_same_way_agrees(name):
    theirs, ours = made(name)
    assert disagreement(mutant(ours)(theirs.tokens), theirs.logits) < TOLERANCE


def spelled(value: str | dict[str, Any]) -> str:
    return (
        value
        if isinstance(value, str)
        else ", ".join(f"{key} {change}" for key, change in value.items())
    )


@pytest.mark.parametrize(("name", "changes"), MUTATIONS, ids=spelled)
def test_one_wrong_setting_is_noticed_in_prefill_and_in_decode(name, changes):
    theirs, ours = made(name)
    wrong = mutant(ours, **changes)
    assert disagreement(wrong(theirs.tokens), theirs.logits) > FAR
    decoded = fed_in_blocks(wrong, theirs.tokens, [theirs.tokens.shape[1] - LAST] + [1] * LAST)
    assert disagreement(decoded[:, -LAST:], theirs.logits[:, -LAST:]) > FAR


# One case for each kind of cache: full, ring, both, latent.
CACHES = ("llama-3", "mistral", "gemma-3", "deepseek-v3")


def continued(theirs: Reference, ours: Transformer, forget: int = 0, shift: int = 0) -> float:
    """Disagreement on the last tokens where the cache has lost its newest ones, or their positions
    are shifted."""
    total = theirs.tokens.shape[1]
    store = ours.new_cache(len(theirs.tokens), total, rollback=1)
    ours(theirs.tokens[:, :-LAST], store)
    store.truncate(total - LAST - forget)
    positions = torch.arange(total - LAST, total) + shift
    return disagreement(ours(theirs.tokens[:, -LAST:], store, positions), theirs.logits[:, -LAST:])


@pytest.mark.parametrize("name", CACHES)
def test_a_cache_that_lost_its_newest_token_is_noticed(name):
    assert continued(*made(name)) < TOLERANCE
    assert continued(*made(name), forget=1) > FAR


@pytest.mark.parametrize("name", CACHES)
def test_decoding_one_position_late_is_noticed(name):
    assert continued(*made(name), shift=1) > FAR


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("name", ["mistral", "gemma-3"])
def test_a_ring_of_another_size_than_the_window_is_noticed(name, by, monkeypatch):
    theirs, ours = made(name)

    def other(B: int, window: int, *rest: Any, spare: int) -> Ring:
        return Ring(B, window + by, *rest, spare=spare)

    monkeypatch.setattr(stores, "RingKVCache", other)
    with pytest.raises(ValueError, match="sees a window of 5 tokens, and this cache keeps"):
        fed_in_blocks(ours, theirs.tokens, [1] * theirs.tokens.shape[1])
