"""Sharing KV heads: intensity, parameters, chips."""

import math

import pytest
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.models import checkpoints
from twophase.models.family import FAMILY
from twophase.theory.arithmetic_intensity import attention_intensity_simple, critical_intensity
from twophase.theory.catalog import HARDWARE, model
from twophase.theory.deployment import Deployment
from twophase.theory.grouped_query_attention import (
    critical_group,
    kv_copies,
    kv_heads_per_chip,
    mlp_width_of_equal_params,
)
from twophase.theory.layout import heads_of_chip, heads_per_chip
from twophase.theory.workload import Workload

SIZES = st.integers(1, 64)


@draws(60)
@given(S=st.integers(1, 10**6), T=st.integers(1, 64), ridge=st.floats(0.5, 600))
def test_the_critical_group_is_where_intensity_meets_the_ridge(S, T, ridge):
    W = 1e12
    group = critical_group(S, ridge * W, W, T)
    limit = attention_intensity_simple(T, S, 10**15)  # queries and outputs are all that is read
    if math.isinf(group):
        assert limit <= ridge * (1 + 1e-9)
    else:
        assert attention_intensity_simple(T, S, group) == pytest.approx(ridge, rel=1e-9)


def test_no_published_chip_is_reached_by_the_largest_group_of_the_catalog_with_one_query():
    ridges = [
        critical_intensity(chip.peak_flops_per_s("bf16"), chip.hbm_bytes_per_s)
        for chip in HARDWARE.values()
        if "bf16" in chip.flops_per_s
    ]
    assert min(ridges) > attention_intensity_simple(1, 10**6, model("llama-2-70b").G)


@pytest.mark.parametrize("name", ["mha", "mqa"])
def test_the_family_has_the_mlps_that_equal_parameters_ask_for(name):
    gqa, other = FAMILY["gqa"], FAMILY[name]
    few, many = sorted((gqa, other), key=lambda c: c.K)
    assert round(mlp_width_of_equal_params(many.F, many.K, few.K, many.H)) == few.F
    sizes = [checkpoints.card(n)["n_params"] for n in ("gqa", name)]
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-3)


@draws(40)
@given(K=SIZES, share=SIZES, F=SIZES, H=SIZES)
def test_a_widened_mlp_gives_back_what_shared_heads_free(K, share, F, H):
    a = model("llama-2-7b")
    K_new = max(1, K // share)
    wider = mlp_width_of_equal_params(F, K, K_new, H)
    freed = 2 * a.D * (K - K_new) * H  # a key and a value projection for each head
    assert 3 * a.D * (wider - F) == pytest.approx(freed)


@draws(60)
@given(K=SIZES, G=st.integers(1, 8), n_chips=SIZES)
def test_the_fullest_chip_keeps_what_the_layout_says(K, G, n_chips):
    held = kv_heads_per_chip(K, n_chips)
    assert held == heads_per_chip(G * K, K, n_chips)[1]
    assert kv_copies(K, n_chips) >= 1
    assert (kv_copies(K, n_chips) == 1) == (K % n_chips == 0)


@pytest.mark.parametrize("n_chips", [1, 2, 8, 16])
def test_copies_are_what_the_planner_stores_more_than_an_even_cut(n_chips):
    a = model("llama-3-70b")
    d = Deployment(a, HARDWARE["H100 SXM"], Workload(n_chips=n_chips))
    assert d.cache_bytes(4096) * n_chips == kv_copies(a.K, n_chips) * a.cache_bytes(4096)


@pytest.mark.parametrize(
    ("N", "K", "n_chips"), [(32, 8, 4), (32, 8, 8), (32, 8, 16), (64, 8, 32), (8, 8, 2), (8, 1, 8)]
)
def test_every_query_head_lies_on_one_chip_beside_the_kv_head_that_it_reads(N, K, n_chips):
    seen = []
    for rank in range(n_chips):
        queries, held = heads_of_chip(rank, n_chips, N, K)
        assert {n // (N // K) for n in queries} == set(held)
        assert (len(queries), len(held)) == heads_per_chip(N, K, n_chips)
        seen += queries
    assert seen == list(range(N))


@pytest.mark.parametrize(
    ("rank", "n_chips", "N", "K", "said"),
    [
        (0, 3, 32, 8, "do not divide evenly"),
        (0, 6, 12, 4, "do not divide evenly"),
        (4, 4, 32, 8, "from 0 to 3"),
        (-1, 4, 32, 8, "from 0 to 3"),
        (0, 0, 8, 2, "must be chips"),
        (0, 2, 6, 4, "multiple of K"),
        (0, 8, 8, 16, "multiple of K"),
        (0, 2, 8, 0, "multiple of K"),
    ],
)
def test_heads_that_do_not_divide_and_chips_that_do_not_exist_are_refused(
    rank, n_chips, N, K, said
):
    with pytest.raises(ValueError, match=said):
        heads_of_chip(rank, n_chips, N, K)
