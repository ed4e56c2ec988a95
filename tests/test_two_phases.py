"""What chapter 1 says about FLOPs, held against the meter and against loops."""

import random

import pytest
import torch

from twophase import errata
from twophase.checks import registry
from twophase.kernels import kv_cache
from twophase.kernels.attention import naive_attention
from twophase.measure import Meter
from twophase.models.generate import generate
from twophase.models.transformer import Config, Transformer
from twophase.theory import two_phases as theory
from twophase.theory.catalog import model as published

CONFIG = Config(L=3, D=24, F=40, N=4, K=2, H=10, V=19)  # N·H is not D
T = 7


def small_model() -> Transformer:
    torch.manual_seed(3)
    return Transformer(CONFIG)


def forward_and_training_flops(model: Transformer) -> tuple[int, int]:
    tokens = torch.randint(CONFIG.V, (2, T))
    with Meter() as meter:
        loss = model(tokens).square().sum()
        forward = meter.matmul_flops
        loss.backward()
    return forward, meter.matmul_flops


def test_a_training_step_is_exactly_three_forward_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_cache, "causal_attention", naive_attention)
    forward, both = forward_and_training_flops(small_model())
    assert both == 3 * forward


def test_fused_attention_computes_its_scores_once_more_on_the_way_back() -> None:
    forward, both = forward_and_training_flops(small_model())
    assert both - 3 * forward == 2 * (2 * CONFIG.L * CONFIG.N * CONFIG.H * T**2)


def test_without_anything_to_learn_before_the_first_products_their_input_needs_no_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kv_cache, "causal_attention", naive_attention)
    model = Transformer(Config(**{**CONFIG.to_dict(), "tied": False}))
    model.embed_tokens.requires_grad_(False)
    model.layers[0].input_layernorm.requires_grad_(False)
    forward, both = forward_and_training_flops(model)
    saved = 2 * (2 * T) * CONFIG.D * (CONFIG.N + 2 * CONFIG.K) * CONFIG.H
    assert both == 3 * forward - saved


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("n_prompt", [1, 5])
def test_the_meter_counts_the_formula_at_every_length_of_a_generation(
    cache: bool, n_prompt: int
) -> None:
    model = small_model().eval()
    P = CONFIG.architecture().n_matmul_params()
    formula = theory.cached_generation_flops if cache else theory.naive_generation_flops
    with Meter() as meter:
        counted = [
            meter.matmul_flops
            for _ in generate(model, list(range(n_prompt)), 9, cache=cache, all_logits=True)
        ]
    sizes = (CONFIG.L, CONFIG.N, CONFIG.H)
    assert counted == [formula(n_prompt, n, P, *sizes, causal=False) for n in range(1, 10)]


def test_the_two_terms_of_a_naive_generation_meet_where_the_chapter_says() -> None:
    P, L, N, H = 12_851_609_600, 40, 40, 128  # Llama-2-13B
    n = round(3 * P / (2 * L * N * H))
    weights = theory.naive_generation_flops(1, n, P, L, N, H) - theory.naive_generation_flops(
        1, n, 1e-9, L, N, H
    )
    pairs = theory.naive_generation_flops(1, n, 1e-9, L, N, H)
    assert pairs / weights == pytest.approx(1, rel=1e-3)


def test_the_ledger_and_the_chapter_say_one_length_at_which_pairs_overtake_weights() -> None:
    llama = published("llama-2-7b")
    n = 4 * llama.n_matmul_params() / theory.attention_flops_per_pair(llama.L, llama.N, llama.H)
    said = errata.rows_of("inference_basics")._repr_html_()
    assert f"They overtake at about {n:,.0f} tokens" in said


def test_requests_in_flight_are_rate_times_latency_for_a_queue_counted_moment_by_moment() -> None:
    rng = random.Random(4)
    clock, free, visits = 0, 0, []
    for _ in range(300):
        clock += rng.randrange(1, 20)  # milliseconds, whole
        start = max(clock, free)
        free = start + rng.randrange(1, 18)
        visits.append((clock, free))
    end = visits[-1][1]
    in_flight = sum(sum(a <= moment < b for a, b in visits) for moment in range(end)) / end
    mean_latency_s = sum(b - a for a, b in visits) / len(visits) / 1000
    rate = len(visits) / (end / 1000)
    assert theory.requests_in_flight(rate, mean_latency_s) == pytest.approx(in_flight, rel=1e-9)
    assert theory.requests_per_s(in_flight, mean_latency_s) == pytest.approx(rate, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_the_flops_to_predict_are_those_that_the_meter_counts(seed: int) -> None:
    exercise = registry.load("two_phases-forward_flops")
    run = 0
    for case in exercise.make_cases(seed):
        model, T, n_cached = case.args
        if model["D"] > 1000:  # the case of 8 billion parameters, which no reader's machine runs
            continue
        run += 1
        transformer = Transformer(Config(**model)).eval()
        cache = transformer.new_cache(1, T + n_cached)
        with torch.inference_mode():
            if n_cached:
                transformer(torch.zeros(1, n_cached, dtype=torch.long), cache=cache)
            with Meter() as meter:
                transformer(torch.zeros(1, T, dtype=torch.long), cache=cache)
        assert exercise.reference(model, T, n_cached) == meter.matmul_flops, case.name
    assert run >= 13
