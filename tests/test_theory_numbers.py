"""The worked numbers of the field, each from first principles, and the identities between the
formulas."""

import math
from fractions import Fraction

import numpy as np
import pytest
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.theory import arithmetic_intensity as ai
from twophase.theory import (
    catalog,
    kv_cache,
    latency_throughput,
    mixture_of_experts,
    params,
    two_phases,
)

V5E = catalog.hardware("worked-v5e")
H100 = catalog.hardware("h100")
size = st.integers(1, 40)
unhurried = draws(60)


# Arithmetic intensity
# -------------------------------------------------------------------------------------------


def test_matmul_intensity_tends_to_the_batch_in_bf16_and_to_twice_it_in_int8() -> None:
    assert ai.matmul_intensity(64, 10**9, 10**9) == pytest.approx(64, rel=1e-6)
    assert ai.matmul_intensity(64, 10**9, 10**9, bytes_per_param=1) == pytest.approx(128, rel=1e-6)
    assert ai.matmul_intensity_simple(64, bytes_per_param=1) == 128


@unhurried
@given(size, size, size, size, st.booleans())
def test_an_mlp_is_its_matrix_products(B: int, T: int, D: int, F: int, gated: bool) -> None:
    shapes = [(D, F)] * (2 if gated else 1) + [(F, D)]
    assert ai.mlp_flops(B, T, D, F, gated) == sum(ai.matmul_flops(B * T, a, b) for a, b in shapes)
    assert ai.mlp_bytes_unfused(B, T, D, F, gated) == sum(
        ai.matmul_bytes(B * T, a, b) for a, b in shapes
    )
    assert ai.mlp_bytes(B, T, D, F, gated) <= ai.mlp_bytes_unfused(B, T, D, F, gated)


@unhurried
@given(size, size, size, size, size)
def test_projections_are_four_matrix_products(B: int, T: int, D: int, K: int, H: int) -> None:
    N = 3 * K
    shapes = [(D, N * H), (D, K * H), (D, K * H), (N * H, D)]
    assert ai.projection_flops(B, T, D, N, K, H) == sum(
        ai.matmul_flops(B * T, a, b) for a, b in shapes
    )
    assert ai.projection_bytes(B, T, D, N, K, H) == sum(
        ai.matmul_bytes(B * T, a, b) for a, b in shapes
    )
    assert params.attention_params(D, N, K, H) == sum(a * b for a, b in shapes)


@unhurried
@given(size, size)
def test_causal_pairs_are_those_that_the_mask_lets_through(T: int, more: int) -> None:
    S = T + more
    mask = np.tril(np.ones((T, S)), k=S - T)
    assert ai.attention_pairs(T, S, causal=True) == mask.sum()
    assert ai.attention_pairs(T, S) == mask.size


def test_more_queries_than_keys_are_refused_under_a_causal_mask() -> None:
    with pytest.raises(ValueError, match="T must be at most S"):
        ai.attention_flops(1, 5, 4, 1, 1, causal=True)


@unhurried
@given(size, size, size, size, size, size)
def test_attention_intensity_does_not_depend_on_the_batch(
    B: int, T: int, more: int, K: int, G: int, H: int
) -> None:
    S = T + more
    one, many = (ai.attention_intensity(b, T, S, G * K, K, H) for b in (1, B))
    assert one == pytest.approx(many)
    assert one == pytest.approx(ai.attention_intensity_simple(T, S, G))


def test_attention_intensity_of_the_two_phases() -> None:
    assert ai.attention_intensity_simple(1024, 1024) == 512
    assert ai.attention_intensity_simple(1, 1024) == pytest.approx(1024 / 1025)
    assert ai.attention_intensity_simple(1, 10**9, G=8) == pytest.approx(
        8
    )  # grouped heads do lift it


def test_scores_in_memory_cost_four_passes() -> None:
    flash = ai.attention_bytes(2, 512, 512, 8, 8, 64)
    assert (
        ai.attention_bytes_materialized(2, 512, 512, 8, 8, 64) - flash == 4 * 2 * 2 * 8 * 512 * 512
    )


def test_critical_batches_of_tpu_v5e() -> None:
    peak, bandwidth = V5E.peak_flops_per_s(), V5E.hbm_bytes_per_s
    assert ai.critical_batch(peak, bandwidth) == pytest.approx(243.2, abs=0.05)
    assert ai.critical_batch(peak, bandwidth, bytes_per_param=1) == pytest.approx(121.6, abs=0.05)
    assert ai.critical_batch(peak, bandwidth, E=16, k=2) == pytest.approx(1945.7, abs=0.05)
    # int8 products as well: twice the rate, half the bytes, the same batch
    assert ai.critical_batch(V5E.peak_flops_per_s("int8"), bandwidth, 1) == pytest.approx(
        243.2, abs=0.05
    )


@unhurried
@given(st.integers(600, 10**5), st.integers(600, 10**5))
def test_at_the_exact_critical_batch_compute_and_traffic_take_equally_long(D: int, F: int) -> None:
    B = ai.critical_batch_exact(D, F, 989e12, 3.35e12)
    if math.isinf(B):  # no batch suffices: the intensity stays below the ridge
        assert ai.matmul_intensity(1e30, D, F) <= 989e12 / 3.35e12
        return
    assert ai.matmul_intensity(B, D, F) == pytest.approx(989e12 / 3.35e12)
    assert ai.critical_batch(989e12, 3.35e12) < B


@unhurried
@given(st.floats(1, 1e15), st.floats(1, 1e15), st.floats(1, 1e15), st.floats(1, 1e13))
def test_the_sum_is_between_the_maximum_and_its_double(
    flops: float, moved: float, peak: float, rate: float
) -> None:
    overlapped, serial = (
        f(flops, moved, peak, rate) for f in (ai.time_overlapped_s, ai.time_serial_s)
    )
    assert overlapped <= serial <= 2 * overlapped * (1 + 1e-12)
    assert flops / overlapped == pytest.approx(ai.roofline_flops_per_s(flops / moved, peak, rate))


# The KV cache
# ------------------------------------------------------------------------------------------------


def test_cache_of_the_worked_model() -> None:
    assert kv_cache.kv_bytes_per_token(L=64, K=8, H=256, bytes_per_kv=1) == 262_144
    weights = catalog.model("worked-18b").n_params()  # int8: a byte each
    eight, one = (kv_cache.kv_bytes_per_sequence(128_000, 64, K, 256, 1) for K in (8, 1))
    assert kv_cache.max_batch(16 * 16 * 10**9, weights, eight) == 7
    assert kv_cache.max_batch(16 * 16 * 10**9, weights, one) == 56


def test_caches_of_llama_and_mistral() -> None:
    llama, mistral = catalog.model("llama-2-7b"), catalog.model("mistral-7b")
    assert llama.cache_bytes(2048) == 2**30  # exactly 1 GiB
    assert llama.cache_bytes(2048) / llama.L == 33_554_432
    assert 4 * mistral.cache_bytes(4096) == 2 * 2**30  # 8 KV heads: 2 GiB, where 32 would give 8
    assert catalog.model("llama-2-70b").cache_bytes(128_000) == pytest.approx(41.9e9, rel=2e-3)


def test_a_latent_is_smaller_than_two_heads_and_a_half_of_gqa() -> None:
    v2 = catalog.model("deepseek-v2")
    assert (
        v2.cache_bytes_per_token()
        == 60 * (512 + 64) * 2
        == kv_cache.latent_bytes_per_sequence(1, 60, 512, 64)
    )
    heads = kv_cache.latent_bytes_per_token_per_layer(
        512, 64
    ) / kv_cache.kv_bytes_per_token_per_layer(1, 128)
    assert heads == 2.25  # the paper's "GQA with 2.25 groups"


@unhurried
@given(st.integers(0, 20000))
def test_hybrid_stacks_add_up_layer_by_layer(S: int) -> None:
    a = catalog.model("gemma-3-27b")
    by_layer = (
        sum(min(S, 1024) if kind == "sliding" else S for kind in a.layer_kinds) * 2 * 16 * 128 * 2
    )
    assert (
        a.cache_bytes(S) == by_layer == kv_cache.hybrid_bytes_per_sequence(S, 10, 52, 1024, 16, 128)
    )


def test_a_window_bounds_the_cache_and_a_state_never_grows() -> None:
    a = catalog.model("mistral-7b")
    assert (
        a.cache_bytes(4096)
        == a.cache_bytes(10**6)
        == kv_cache.window_bytes_per_sequence(10**6, 4096, 32, 8, 128)
    )
    assert kv_cache.state_space_bytes(L=2, d_inner=10, d_state=16) == 2 * 10 * 20 * 4
    assert kv_cache.linear_attention_bytes(L=1, N=2, feature_dim=3, H=4) == 2 * 3 * 5 * 4


def test_shared_caches_round_up_to_whole_groups() -> None:
    assert kv_cache.shared_bytes_per_sequence(10, 5, 2, 1, 8) == 3 * kv_cache.kv_bytes_per_sequence(
        10, 1, 1, 8
    )


@unhurried
@given(st.integers(0, 10**12), st.integers(1, 10**12), st.integers(1, 10**9), st.integers(0, 10**9))
def test_the_largest_batch_fits_and_one_more_does_not(
    free: int, weights: int, per_sequence: int, used: int
) -> None:
    capacity = weights + free
    B = kv_cache.max_batch(capacity, weights, per_sequence, used)
    assert B >= 0
    if B:
        assert kv_cache.memory_bytes(weights, B * per_sequence, used) <= capacity
    assert kv_cache.memory_bytes(weights, (B + 1) * per_sequence, used) > capacity
    assert kv_cache.max_context(capacity, weights, 1, per_sequence, used) == B


@unhurried
@given(st.integers(1, 10**13), st.integers(1, 10**10), st.integers(1, 10**5), st.integers(0, 300))
def test_a_memory_that_is_full_to_the_last_byte_fits_with_an_overhead_in_per_cent(
    weights: int, per_sequence: int, B: int, per_cent: int
) -> None:
    used = (weights + B * per_sequence) * (100 + per_cent)  # in hundredths of a byte
    full, short = Fraction(used, 100), Fraction(used - 1, 100)
    share = per_cent / 100  # the float that a person writes as 0.1
    assert kv_cache.max_batch(full, weights, per_sequence, overhead_fraction=share) == B
    assert kv_cache.max_batch(short, weights, per_sequence, overhead_fraction=share) == B - 1
    whole = math.ceil(full)
    assert kv_cache.max_batch(whole, weights, per_sequence, 0, share) in (B, B + 1)
    assert kv_cache.max_context(full, weights, 1, per_sequence, 0, share) == B


def test_overhead_is_a_size_plus_a_fraction_of_the_rest() -> None:
    assert kv_cache.memory_bytes(
        100, 20, 30, overhead_bytes=7, overhead_fraction=0.1
    ) == pytest.approx(172)


# FLOPs of the phases
# --------------------------------------------------------------------------------------------


@unhurried
@given(size, size, size, size, size, size, st.booleans())
def test_closed_forms_equal_the_sums(
    n: int, m: int, P: int, L: int, N: int, H: int, causal: bool
) -> None:
    def prefill(T: int) -> int:
        return int(two_phases.dense_prefill_flops(1, T, P, L, N, H, causal))

    def step(S: int) -> int:
        return int(two_phases.dense_decode_step_flops(1, S, P, L, N, H))

    naive = sum(prefill(n + i) for i in range(m))
    cached = prefill(n) + sum(step(n + i) for i in range(1, m))
    for closed, summed in (
        (two_phases.naive_generation_flops, naive),
        (two_phases.cached_generation_flops, cached),
    ):
        answer = closed(n, m, P, L, N, H, causal)
        assert answer == summed
        assert isinstance(answer, int)


def test_naive_generation_grows_with_the_cube_and_cached_with_the_square() -> None:
    def growth(function: object, P: int) -> float:
        one, two = (function(1, n, P, 32, 32, 128) for n in (10**7, 2 * 10**7))  # type: ignore[operator]
        return float(two / one)

    assert growth(two_phases.naive_generation_flops, 1) == pytest.approx(8, rel=1e-3)
    assert growth(two_phases.cached_generation_flops, 1) == pytest.approx(4, rel=1e-3)
    # while the weights' products dominate, each is one power lower
    assert growth(two_phases.naive_generation_flops, 10**18) == pytest.approx(4, rel=1e-3)
    assert growth(two_phases.cached_generation_flops, 10**18) == pytest.approx(2, rel=1e-3)


def test_a_causal_cached_generation_costs_one_prefill_of_its_length() -> None:
    whole = two_phases.dense_prefill_flops(1, 100 + 19, 10**9, 32, 32, 128)
    assert two_phases.cached_generation_flops(100, 20, 10**9, 32, 32, 128) == whole


@unhurried
@given(st.integers(1, 3), st.integers(1, 300))
def test_a_models_flops_add_up_token_by_token(B: int, T: int) -> None:
    for name in ("llama-2-7b", "gemma-2-9b", "mixtral-8x7b"):
        a = catalog.model(name)
        assert a.prefill_flops(B, T) == sum(a.decode_step_flops(B, s) for s in range(1, T + 1))


def test_a_dense_models_flops_are_those_of_its_letters() -> None:
    a = catalog.model("llama-3-70b")
    letters = (a.n_matmul_params(), a.L, a.N, a.H)
    assert a.prefill_flops(3, 777) == two_phases.dense_prefill_flops(3, 777, *letters)
    assert a.decode_step_flops(3, 777) == two_phases.dense_decode_step_flops(3, 777, *letters)
    last = two_phases.dense_prefill_flops(3, 777, *letters, head_params=a.V * a.D)
    assert a.prefill_flops(3, 777, head_at_last_only=True) == last
    assert a.n_matmul_params() == a.n_params() - a.breakdown()["embedding"] - a.breakdown()["norms"]


@unhurried
@given(st.integers(1, 60), st.integers(1, 60))
def test_a_window_limits_the_pairs_to_its_band(T: int, window: int) -> None:
    assert ai.window_pairs(T, window) == sum(min(i, window) for i in range(1, T + 1))
    assert ai.window_pairs(T, T + window) == ai.attention_pairs(T, T, causal=True)


def test_absorbed_latent_attention_pays_per_pair_what_it_saves_in_bytes() -> None:
    a = catalog.model("deepseek-v2")
    per_key = a.decode_step_flops(1, 101) - a.decode_step_flops(1, 100)
    assert per_key == 60 * 2 * 128 * (512 + 64 + 512)
    prefill_pair = 60 * 2 * 128 * (128 + 64 + 128)
    assert a.prefill_flops(1, 2) - 2 * a.prefill_flops(1, 1) == prefill_pair


def test_latency_counts_the_first_token_once() -> None:
    assert two_phases.total_latency_s(0.5, 0.02, 100) == pytest.approx(2.48)
    assert two_phases.total_latency_s(0.5, 0.02, 100, first_included=False) == pytest.approx(2.5)
    assert latency_throughput.tpot_s(2.48, 0.5, 100) == pytest.approx(0.02)
    with pytest.raises(ValueError, match="2 or more"):
        latency_throughput.tpot_s(1.0, 1.0, 1)


def test_littles_law_goes_both_ways() -> None:
    rate = two_phases.requests_per_s(64, 2.5)
    assert two_phases.requests_in_flight(rate, 2.5) == 64
    assert two_phases.per_second(100e9) == pytest.approx(1.157e6, rel=1e-3)


# Latency and throughput
# -----------------------------------------------------------------------------------------


def llama_13b_step(B: int, K: int) -> tuple[float, float, float]:
    """Memory in GB, step in ms and tokens/s of Llama-2-13B with K KV heads, norms left out, S =
    1024, on an H100."""
    weights = 2 * params.transformer_params(L=40, D=5120, F=13824, N=40, K=K, H=128, V=32000)
    cache = kv_cache.kv_bytes_per_sequence(1024, 40, K, 128)
    step = latency_throughput.memory_step_time_s(weights, B, cache, 3.35e12)
    moved = latency_throughput.step_bytes(weights, B, cache)
    return moved / 1e9, step * 1e3, latency_throughput.throughput_tokens_per_s(B, step)


@pytest.mark.parametrize(
    ("B", "K", "memory_gb", "step_ms", "tokens_per_s"),
    [
        (1, 40, 26.87, 8.021, 124.7),
        (64, 40, 79.72, 23.80, 2689.5),
        (256, 40, 240.78, 71.87, 3561.8),
        (64, 8, 33.41, 9.974, 6416.6),
        (256, 8, 65.62, 19.59, 13068.1),
    ],
)
def test_llama_2_13b_on_an_h100(
    B: int, K: int, memory_gb: float, step_ms: float, tokens_per_s: float
) -> None:
    found = llama_13b_step(B, K)
    assert found == (
        pytest.approx(memory_gb, abs=0.006),
        pytest.approx(step_ms, rel=3e-4),
        pytest.approx(tokens_per_s, rel=3e-4),
    )


def test_the_30b_pop_quiz() -> None:
    cache = 8192 * 100e3
    floor = latency_throughput.step_time_floor_s(30e9, 8.1e11, 16)
    step = latency_throughput.memory_step_time_s(30e9, 4, cache, 8.1e11, 16)
    assert floor == pytest.approx(2.31e-3, rel=3e-3)
    assert step == pytest.approx(2.57e-3, rel=2e-3)
    assert latency_throughput.step_time_floor_s(18.4e9, 8.1e11, 16) == pytest.approx(
        1.42e-3, rel=2e-3
    )


@unhurried
@given(st.integers(1, 1000), st.integers(1, 10**9), st.integers(1, 10**11))
def test_the_split_form_lies_between_max_and_sum(B: int, cache: int, P: int) -> None:
    overlapped, serial = (
        latency_throughput.step_time_s(2 * P, B, cache, 2 * B * P, 3.35e12, 989e12, overlap=o)
        for o in (True, False)
    )
    split = latency_throughput.step_time_split_s(2 * P, B, cache, P, 3.35e12, 989e12)
    assert overlapped <= split * (1 + 1e-12)
    assert split <= serial * (1 + 1e-12)


def test_throughput_approaches_its_ceiling_from_below() -> None:
    ceiling = latency_throughput.throughput_ceiling_tokens_per_s(8e8, 3.35e12)
    rates = [
        B / latency_throughput.memory_step_time_s(26e9, B, 8e8, 3.35e12) for B in (1, 100, 10**6)
    ]
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(ceiling, rel=1e-4)
    assert rates[-1] < ceiling


def test_time_to_first_token_cannot_beat_one_read_of_the_weights() -> None:
    short = latency_throughput.ttft_s(1e9, 26e9, 3.35e12, 989e12, queue_s=0.1)
    assert short == pytest.approx(0.1 + 26e9 / 3.35e12)
    both = latency_throughput.ttft_s(1e14, 26e9, 3.35e12, 989e12, overlap=False)
    assert both == pytest.approx(1e14 / 989e12 + 26e9 / 3.35e12)


def test_cost_follows_from_chip_hours() -> None:
    hours = latency_throughput.chip_hours_per_million_tokens(1000, n_chips=8)
    assert hours == pytest.approx(8000 / 3600)
    assert latency_throughput.cost_per_million_tokens(3, 1000, n_chips=8) == pytest.approx(
        3 * hours
    )
    assert latency_throughput.throughput_tokens_per_s(64, 0.02, n_replicas=3) == pytest.approx(9600)


@unhurried
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_the_pareto_front_is_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    def beaten(i: int) -> bool:
        x, y = points[i]
        return any(
            (a <= x and b >= y and (a, b) != (x, y)) or ((a, b) == (x, y) and j < i)
            for j, (a, b) in enumerate(points)
        )

    found = latency_throughput.pareto_front(points)
    assert sorted(found) == [i for i in range(len(points)) if not beaten(i)]
    assert [points[i][0] for i in found] == sorted(points[i][0] for i in found)


def test_a_front_refuses_what_is_no_number() -> None:
    with pytest.raises(ValueError, match="two numbers"):
        latency_throughput.pareto_front([(1.0, float("nan"))])


# Experts
# ------------------------------------------------------------------------------------------------


def test_touched_experts_by_enumeration() -> None:
    from itertools import combinations, product

    E, k, B = 5, 2, 3
    choices = list(combinations(range(E), k))
    counts = [len(set().union(*tokens)) for tokens in product(choices, repeat=B)]
    assert mixture_of_experts.expected_experts(B, E, k) == pytest.approx(sum(counts) / len(counts))
    assert mixture_of_experts.expected_experts(1, 16, 2) == pytest.approx(2)
    assert mixture_of_experts.expected_experts(0, 16, 2) == 0
    assert mixture_of_experts.expected_experts(7, 4, 4) == 4
