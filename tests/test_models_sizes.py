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

from twophase.measure.meter import Meter
from twophase.models.family import FAMILY
from twophase.models.layer_sizes import LinearAttention, StateSpace
from twophase.models.transformer import Config, Transformer
from twophase.theory.catalog import MODELS
from twophase.theory.kv_cache import max_batch
from twophase.theory.layout import chip_part, uneven_cuts
from twophase.theory.sizes import LatentAttention, LayerWidths, MixtureOfExperts


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


COUNTED_ONLY = ("gpt-oss-20b", "gpt-oss-120b")  # no layer here has sinks or biases of experts
each_catalog_model = pytest.mark.parametrize(
    "catalog_model", [name for name in MODELS if name not in COUNTED_ONLY], indirect=True
)


@pytest.mark.parametrize("name", COUNTED_ONLY)
def test_a_model_that_is_only_counted_is_refused_by_its_name(name):
    with pytest.raises(ValueError, match=f"{name} is counted, but cannot be built here"):
        Config.from_architecture(MODELS[name])


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
PRUNED = (LayerWidths(F=7, N=2, K=1), LayerWidths(F=20, N=6, K=2), LayerWidths(F=3, N=4, K=2))
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
    "pruned": replace(ODD, widths=PRUNED),
    "pruned, with biases": replace(
        ODD, widths=PRUNED, qkv_bias=True, o_bias=True, mlp_bias=True, qk_norm=True, tied=False
    ),
    "pruned, keys shared, windows": replace(
        ODD,
        widths=(PRUNED[1], PRUNED[2], PRUNED[0]),
        kv_source=(0, 0, 2),
        attention=("sliding", "sliding", "gqa"),
        window=7,
    ),
    "pruned, latents beside keys": replace(
        ODD, widths=PRUNED, attention=("mla", "sliding", "mla"), mla=MLA, window=7, rotary_dim=4
    ),
    "pruned, experts": replace(
        ODD,
        widths=(LayerWidths(F=9, N=2, K=1), LayerWidths(F=20, N=6, K=2), LayerWidths(20, 4, 2)),
        moe=MixtureOfExperts(E=5, k=2, F=7, n_shared=2, n_dense_layers=1),
    ),
    "pruned, state space": replace(
        ODD,
        widths=(LayerWidths(F=7, N=6, K=2), PRUNED[0], LayerWidths(F=5, N=6, K=3)),
        attention=("ssm", "gqa", "ssm"),
        ssm=SSM,
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


MEASURED = [name for name, config in SMALL.items() if config.widths and not config.ssm]


@pytest.mark.parametrize("name", MEASURED)
def test_the_flops_of_a_pruned_model_are_those_that_the_meter_counts(name):
    model, arch, B, T = made(name), CACHED[name].architecture(), 2, 12
    cache, tokens = model.new_cache(B, T + 1), torch.randint(0, 31, (B, T + 1))
    with torch.inference_mode():
        with Meter() as prefill:
            model(tokens[:, :T], cache)
        with Meter() as step:
            model(tokens[:, T:], cache)
    assert step.matmul_flops == arch.decode_step_flops(B, T + 1)
    if set(arch.layer_kinds) == {"full"}:  # the kernel computes the masked pairs, too
        masked = (T * T - T * (T + 1) // 2) * sum(4 * w.N * arch.H for w in arch.layer_widths)
        assert prefill.matmul_flops == arch.prefill_flops(B, T) + B * masked


@pytest.mark.parametrize("name", [name for name, config in SMALL.items() if config.widths])
def test_the_largest_batch_of_a_pruned_model_fits_by_its_own_count_and_one_more_does_not(name):
    model, arch, S = made(name), CACHED[name].architecture(), 33
    weights = 4 * model.n_params
    for memory in (weights + 100_000, weights + 123_457):
        B = max_batch(memory, arch.n_params() * 4, arch.cache_bytes(S, bytes_per_kv=4))
        assert weights + model.new_cache(B, S).nbytes <= memory
        assert weights + model.new_cache(B + 1, S).nbytes > memory


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"widths": PRUNED[:2]}, "widths has 2 entries for 3 layers"),
        ({"widths": (*PRUNED[:2], LayerWidths(F=3, N=5, K=2))}, "layer 2 needs positive integers"),
        ({"widths": (*PRUNED[:2], LayerWidths(F=0, N=4, K=2))}, "layer 2 needs positive integers"),
        ({"kv_source": (0, 0, 2)}, "layer 1 reads keys of a layer of other KV heads"),
        ({"moe": MixtureOfExperts(E=5, k=2, F=7)}, "layer 0 has experts, each as wide as `moe`"),
        ({"attention": ("full", "full", "state")}, "layer 2 has a state"),
    ],
)
def test_widths_that_the_theory_cannot_count_are_refused_by_name(change, says):
    arch = SMALL["pruned"].architecture()
    with pytest.raises(ValueError, match=says):
        replace(arch, **change)


def test_a_model_whose_layers_differ_has_no_single_number_of_kv_heads():
    with pytest.raises(ValueError, match="KV heads of their own"):
        SMALL["pruned"].architecture().with_kv_heads(1)


def test_a_chips_part_of_a_pruned_model_is_cut_layer_by_layer():
    whole = SMALL["pruned"].architecture()
    assert uneven_cuts(whole, 2, "heads")  # a layer with one KV head
    widths = LayerWidths(8, 4, 2), LayerWidths(4, 2, 2), LayerWidths(4, 2, 2)
    whole = replace(whole, widths=widths)
    part = chip_part(whole, 2)
    assert part.widths == (LayerWidths(4, 2, 1), LayerWidths(2, 1, 1), LayerWidths(2, 1, 1))
    assert 2 * part.cache_bytes(9) == whole.cache_bytes(9)
    assert uneven_cuts(whole, 2, "heads") == []
