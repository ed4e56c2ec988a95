"""Sizes are what the theory says, to the byte and to the parameter: every model of the catalog,
every kind of cache.

The catalog's models are built on torch's meta device, which keeps shapes and allocates nothing, so
that DeepSeek-V3 fits into a test. Small models are run, and the memory that their caches then hold
is added up, tensor by tensor.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any
from unittest import mock

import pytest
import torch

from twophase.models.family import FAMILY
from twophase.models.layer_sizes import LinearAttention, StateSpace
from twophase.models.transformer import Config, Transformer
from twophase.theory.catalog import MODELS
from twophase.theory.sizes import LatentAttention, MixtureOfExperts


@pytest.fixture(scope="module")
def built() -> dict[str, Transformer]:
    return {}


@pytest.fixture
def catalog_model(request, built) -> Transformer:
    """A model of the catalog in bf16, without memory."""
    if request.param not in built:
        no_draws = mock.patch("torch.nn.init.normal_", lambda tensor, *law, **of: tensor)
        with torch.device("meta"), no_draws:
            built[request.param] = Transformer(
                Config.from_architecture(MODELS[request.param])
            ).bfloat16()
    return built[request.param]


each_catalog_model = pytest.mark.parametrize("catalog_model", MODELS, indirect=True)


@each_catalog_model
def test_a_model_of_the_catalog_has_as_many_parameters_as_the_theory_counts(catalog_model, request):
    arch = MODELS[request.node.callspec.params["catalog_model"]]
    assert catalog_model.n_params == arch.n_params()
    assert catalog_model.config.architecture(arch.name) == arch  # nothing was lost on the way


@each_catalog_model
def test_the_caches_of_the_catalogs_models_take_the_bytes_of_the_theory(catalog_model, request):
    arch = MODELS[request.node.callspec.params["catalog_model"]]
    window = arch.window or 1000
    for S in (1, 17, window - 1, window, window + 1, 6 * window):
        for B in (1, 3):
            assert catalog_model.new_cache(B, S).nbytes == B * arch.cache_bytes(S, bytes_per_kv=2)


ODD = Config(L=3, D=24, F=20, N=6, K=2, H=10, V=31)  # N·H = 60 is not D
MLA = LatentAttention(R=9, rope_dim=4, nope_dim=6, v_dim=5)
LINEAR, SSM = (
    LinearAttention(feature_dim=4),
    StateSpace(d_inner=14, d_state=5, conv_width=3, dt_rank=2),
)
SMALL: dict[str, Config] = {
    "K is 1": replace(ODD, K=1),
    "windows": replace(ODD, attention="sliding", window=7),
    "window 1": replace(ODD, attention="sliding", window=1),
    "local and global": replace(ODD, attention=("sliding", "gqa", "sliding"), window=7),
    "shared keys": replace(ODD, kv_source=(0, 0, 2), qk_norm=True, qkv_bias=True),
    "shared local keys": replace(ODD, attention="sliding", window=7, kv_source=(0, 0, 0)),
    "latents": replace(ODD, attention="mla", mla=MLA),
    "latents of queries too": replace(
        ODD, attention="mla", mla=replace(MLA, q_rank=11), qkv_bias=True, o_bias=True
    ),
    "latents beside keys": replace(
        ODD, attention=("mla", "sliding", "gqa"), mla=MLA, window=7, rotary_dim=4
    ),
    "linear": replace(ODD, attention=("linear", "sliding", "linear"), linear=LINEAR, window=7),
    "state space": replace(ODD, attention=("ssm", "gqa", "ssm"), ssm=SSM),
    "experts": replace(
        ODD, moe=MixtureOfExperts(E=5, k=2, F=7, n_shared=2, n_dense_layers=1, router_bias=True)
    ),
    "gpt": replace(
        ODD,
        norm="layer",
        gated_mlp=False,
        learned_positions=40,
        mlp_bias=True,
        qkv_bias=True,
        o_bias=True,
    ),
    "gemma": replace(ODD, norms_per_layer=4, qk_norm=True, norm_offset=1.0, tied=False),
}
ALL = {**{f"family: {name}": config for name, config in FAMILY.items()}, **SMALL}
CACHED = {
    name: config for name, config in ALL.items() if config.causal
}  # what reads both ways has no cache


@pytest.mark.parametrize("config", ALL.values(), ids=ALL)
def test_a_small_model_has_as_many_parameters_as_the_theory_counts(config):
    with torch.device("meta"):
        assert Transformer(config).n_params == config.architecture().n_params()


@cache
def made(name: str) -> Transformer:
    return Transformer(CACHED[name]).eval()


@pytest.mark.parametrize("name", CACHED)
@pytest.mark.parametrize("S", [1, 6, 7, 8, 33])
def test_a_cache_that_has_seen_S_tokens_holds_the_bytes_of_the_theory_and_no_more(name, S):
    model, config, B = made(name), CACHED[name], 2
    cache = model.new_cache(B, S)
    with torch.inference_mode():
        for block in torch.randint(0, config.V, (B, S)).split(
            max(1, S - 2), dim=1
        ):  # a prompt and a short rest
            model(block, cache)
    assert cache.length == S
    assert (
        cache.nbytes
        == held_bytes(cache)
        == B * config.architecture().cache_bytes(S, bytes_per_kv=4)
    )


def held_bytes(cache: object) -> int:
    """Bytes of all memory that is reachable from a cache, each block once."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors(cache)
    }
    return sum(storage.nbytes() for storage in storages.values())


def tensors(thing: Any) -> Iterator[torch.Tensor]:
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from tensors(value)
    elif isinstance(thing, list | tuple):
        for value in thing:
            yield from tensors(value)
    elif hasattr(thing, "__dict__"):
        yield from tensors(vars(thing))
