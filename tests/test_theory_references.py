"""The right answer of every exercise about a formula is that formula: the reference, written on its
own, and the function of theory agree on all cases of several seeds."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from exercise_tools import ALL_IDS

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer
from twophase.checks.exercise import Case
from twophase.theory import arithmetic_intensity as ai
from twophase.theory import (
    collectives,
    continuous_batching,
    kv_cache,
    latent_attention,
    paging,
    pruning,
    quantization,
    sharding,
    two_phases,
)
from twophase.theory import latency_throughput as lt
from twophase.theory import local_attention as local
from twophase.theory import mixture_of_experts as moe
from twophase.theory import speculative_decoding as spec
from twophase.theory.architecture import Architecture
from twophase.theory.deployment import largest
from twophase.theory.params import (
    attention_params,
    mlp_params,
    moe_transformer_params,
    transformer_params,
)

SEEDS = 3
Sizes = dict[str, Any]


def forward_flops(model: Sizes, T: int, n_cached: int) -> Any:
    """The meter counts masked pairs, too."""
    m = Architecture("exercise", **model)
    pairs = ai.attention_flops(1, T, n_cached + T, m.N, m.H)
    return two_phases.forward_flops(T, m.n_matmul_params()) + m.L * pairs


def generation_flops(n_params: int, n_prompt: int, n_output: int, cached: bool) -> Any:
    """The exercise leaves attention's pairs out: what twice the parameters cost more."""
    cost = two_phases.cached_generation_flops if cached else two_phases.naive_generation_flops
    once, twice = (cost(n_prompt, n_output, n * n_params, 1, 1, 1) for n in (1, 2))
    return twice - once


def metrics(arrival_s: float, token_times_s: list[float]) -> Any:
    n, first, last = len(token_times_s), token_times_s[0], token_times_s[-1]
    ttft, latency = first - arrival_s, last - arrival_s
    return {
        "ttft_s": ttft,
        "tpot_s": lt.tpot_s(latency, ttft, n) if n > 1 else None,
        "latency_s": latency,
        "tokens_per_s": lt.throughput_tokens_per_s(n, latency),
    }


def step_times(kernels: list[tuple[float, float]], C: float, W: float) -> Any:
    flops, moved = (sum(column) for column in zip(*kernels, strict=True))
    within = sum(ai.time_overlapped_s(*kernel, C, W) for kernel in kernels)
    return [ai.time_overlapped_s(flops, moved, C, W), within, ai.time_serial_s(flops, moved, C, W)]


def predict(B: int, T: int, S: int, D: int, F: int, N: int, K: int, H: int, width: int) -> Any:
    return {
        "mlp_flops": ai.mlp_flops(B, T, D, F),
        "mlp_bytes": ai.mlp_bytes(B, T, D, F, True, width, width),
        "attention_flops": ai.attention_flops(B, T, S, N, H),
        "attention_bytes": ai.attention_bytes(B, T, S, N, K, H, width, width),
    }


def critical_batch(C: float, W: float, bits: float, activation_bits: float, E: int, k: int) -> Any:
    return ai.critical_batch(C, W, bits / 8, E, k)


def max_batch(memory: int, weights: int, kv_per_token: int, n_tokens: int) -> Any:
    return kv_cache.max_batch(memory, weights, kv_per_token * n_tokens)


def budget(memory: int, n: int, width: int, B: int, kv: int, activations: int, percent: int) -> Any:
    fixed = n * width + activations
    return kv_cache.max_context(memory, fixed, B, kv, overhead_fraction=percent / 100)


def step_bytes(B: int, S: int, S_max: int, N: int, K: int, H: int, width: int) -> Any:
    """Attention over S + 1 positions, the new one read from the step and written to the cache."""
    appended = 2 * B * kv_cache.kv_bytes_per_token_per_layer(K, H, width)
    return ai.attention_bytes(B, 1, S + 1, N, K, H, width, width) + appended


def bytes_read(model: Sizes, B: int, S: int, width: int) -> Any:
    sizes = {name: size for name, size in model.items() if name != "tied"}
    m = Architecture("exercise", **sizes, tied_embeddings=model["tied"])
    return lt.step_bytes(m.step_weight_bytes(B, width), B, m.cache_bytes(S + 1, width))


def decode_point(model: Sizes, B: int, S: int, memory: float, bytes_per_s: float) -> Any:
    weights = kv_cache.weight_bytes(transformer_params(**model))
    cache = kv_cache.kv_bytes_per_sequence(S, model["L"], model["K"], model["H"])
    if kv_cache.max_batch(memory, weights, cache) < B:
        return None
    step_s = lt.memory_step_time_s(weights, B, cache, bytes_per_s)
    return step_s, lt.throughput_tokens_per_s(B, step_s)


def cost(tokens_per_s: float, n_chips: int, price: float, busy: float) -> Any:
    hours = lt.chip_hours_per_million_tokens(tokens_per_s * busy, n_chips)
    return hours, lt.cost_per_million_tokens(price, tokens_per_s * busy, n_chips)


def step_time(weights: int, B: int, n_tokens: int, kv: int, n_chips: int, W: float) -> Any:
    return lt.memory_step_time_s(weights, B, n_tokens * kv, W, n_chips)


def gqa_intensity(T: int, S: int, N: int, K: int, H: int, bytes_q: float, bytes_kv: float) -> Any:
    return ai.attention_intensity(1, T, S, N, K, H, False, bytes_q, bytes_kv)


def repeated_bytes(B: int, S: int, N: int, K: int, H: int, width: int) -> Any:
    """The copies are written, of a cache that is read; then attention reads N heads."""
    per_head = B * S * kv_cache.kv_bytes_per_token_per_layer(1, H, width)
    copied = (K + N) * per_head
    return {
        "repeated": copied + ai.attention_bytes(B, 1, S, N, N, H, width, width),
        "shared": ai.attention_bytes(B, 1, S, N, K, H, width, width),
    }


def batch_by_heads(memory: int, other: int, L: int, D: int, N: int, H: int, n: int, b: int) -> Any:
    pairs = []
    for K in (K for K in range(N, 0, -1) if N % K == 0):
        weights = kv_cache.weight_bytes(other + L * attention_params(D, N, K, H), b)
        cache = kv_cache.kv_bytes_per_sequence(n, L, K, H, b)
        pairs.append((K, kv_cache.max_batch(memory, weights, cache)))
    return pairs


def cache_bytes(config: Sizes, width: float) -> Any:
    """The exercise names sizes as configs do, and leaves out what they say by default."""
    m, L, N = config, config["num_hidden_layers"], config["num_attention_heads"]
    if m.get("kv_lora_rank") is not None:
        return kv_cache.latent_bytes_per_sequence(
            1, L, m["kv_lora_rank"], m["qk_rope_head_dim"], width
        )
    K, H = m.get("num_key_value_heads") or N, m.get("head_dim") or m["hidden_size"] // N
    return kv_cache.kv_bytes_per_token(L, K, H, width)


def forms_flops(*sizes: int) -> Any:
    return {
        "expanded": latent_attention.expanded_flops(*sizes),
        "absorbed": latent_attention.absorbed_flops(*sizes),
    }


def moe_params(
    L: int, D: int, F: int, N: int, K: int, H: int, V: int, E: int, k: int, n_shared: int
) -> Any:
    """Shared experts stand beside; the router's other columns are active, too."""
    shared = L * n_shared * mlp_params(D, F)
    total, active = (moe_transformer_params(L, D, F, N, K, H, V, n, tied=True) for n in (E, k))
    return {"total": total + shared, "active": active + shared + L * D * (E - k)}


def expert_bytes(B: int, E: int, k: int, D: int, F: int, width: float) -> Any:
    return moe.expected_expert_bytes(B, E, k, 1, mlp_params(D, F), width)


def critical_batch_of_experts(
    dense: float, expert: float, E: int, k: int, C: float, W: float, width: float
) -> Any:
    """The first batch of which computing takes as long as reading, by halving."""

    def reads_longer(B: int) -> bool:
        computing = lt.compute_time_s(two_phases.forward_flops(B, dense + k * expert), C)
        read = kv_cache.weight_bytes(dense, width)
        return computing < (read + moe.expected_expert_bytes(B, E, k, 1, expert, width)) / W

    return largest(reads_longer, 10**6) + 1


def burstiness(times_s: list[float]) -> Any:
    gaps = [after - before for before, after in pairwise(times_s)]
    if not gaps:
        return None
    return {"per_s": len(gaps) / sum(gaps), "burstiness": continuous_batching.burstiness(gaps)}


def finishing(lengths: list[int], seats: int) -> Any:
    """Static: steps up to the end of each batch. Continuous: the least of all ends is the next."""
    ends = [seats * (i // seats + 1) for i in range(len(lengths))]
    static = {end: continuous_batching.static_steps(lengths[:end], seats) for end in set(ends)}
    continuous: list[int] = []
    for i, length in enumerate(lengths):
        over = sorted(continuous)[i - seats] if i >= seats else 0  # so many have ended by then
        continuous.append(over + length)
    return {"static": [static[end] for end in ends], "continuous": continuous}


def padding_shares(prompts: list[int], answers: list[int]) -> Any:
    share = continuous_batching.padding_share
    places = [len(x) * max(x) for x in (prompts, answers)]
    shares = share(prompts), share(answers)
    both = sum(n * part for n, part in zip(places, shares, strict=True)) / sum(places)
    return {"prompts": shares[0], "answers": shares[1], "both": both}


def chunk_within(
    read_bytes: float,
    token_flops: float,
    bytes_per_s: float,
    flops_per_s: float,
    B: int,
    prompt: int,
    limit_s: float,
) -> Any:
    def keeps(n: int) -> bool:
        flops = (B + n) * token_flops
        return bool(lt.step_time_s(read_bytes, 0, 0, flops, bytes_per_s, flops_per_s) <= limit_s)

    if not keeps(0):
        return {"chunk": None, "passes": None}
    chunk = largest(keeps, prompt)
    return {"chunk": chunk, "passes": len(range(0, prompt, chunk)) if chunk else None}


def pass_times(
    starts: list[int], n_new: list[int], model: Sizes, bytes_per_s: float, flops_per_s: float
) -> Any:
    """A query sees as many keys as stand up to it: the pairs are counted one query at a time."""
    seen = [start + t for start, n in zip(starts, n_new, strict=True) for t in range(1, n + 1)]
    flops = len(seen) * model["token_flops"] + sum(seen) * model["pair_flops"]
    read = model["weight_bytes"] + sum(starts) * model["kv_bytes"]
    read_s = lt.memory_step_time_s(read, 0, 0, bytes_per_s)
    compute_s = lt.compute_time_s(flops, flops_per_s)
    longer = lt.step_time_s(read, 0, 0, flops, bytes_per_s, flops_per_s)
    return {"read_s": read_s, "compute_s": compute_s, "pass_s": longer}


def wait_for_one(per_s: float, service_s: list[float]) -> Any:
    n = len(service_s)
    mean, square = sum(service_s) / n, sum(s**2 for s in service_s) / n
    if per_s * mean >= 1:
        return None
    wait = continuous_batching.mean_wait_s(per_s, mean, square)
    busy = continuous_batching.busy_share(per_s, mean)
    return {"busy": busy, "wait_s": wait, "latency_s": wait + mean}


Windows = list[int | None]


def field_of_stack(windows: Windows, S: int) -> Any:
    """Each layer adds what one of its kind reaches beyond the token itself."""
    reached = sum(S - 1 if w is None else local.receptive_field(1, w) - 1 for w in windows)
    return min(S, 1 + reached)


def hybrid_cache(windows: Windows, S: int, K: int, H: int, width: int) -> Any:
    """Layer by layer, each a stack of its own."""
    counts = [(1, 0, 1) if w is None else (0, 1, w) for w in windows]
    return sum(kv_cache.hybrid_bytes_per_sequence(S, *count, K, H, width) for count in counts)


def hybrid_step(B: int, S: int, windows: Windows, N: int, K: int, H: int, width: int) -> Any:
    """As `step_bytes`, with as many keys as each layer's window lets through."""
    appended = 2 * B * kv_cache.kv_bytes_per_token_per_layer(K, H, width)
    keys = [S + 1 if w is None else min(S + 1, w) for w in windows]
    return sum(ai.attention_bytes(B, 1, n, N, K, H, width, width) + appended for n in keys)


def collective_s(kind: str, size: int, n: int, rate: float, hop_s: float, closed: bool) -> Any:
    time_s = collectives.all_reduce_s if kind == "all_reduce" else collectives.all_gather_s
    return float(time_s(size, n, rate, 1, collectives.ring_hops(n, closed), hop_s, closed))


def sent_by_layouts(**sizes: int) -> Any:
    """Fractions are exact where floats are not."""
    B, D, F, N, K, H, n, b = (Fraction(sizes[name]) for name in "BDFNKHnb")
    sums = 2 * sharding.tensor_sent_bytes(B, D, n, b)
    weights = 3 * D * F + attention_params(D, N, K, H)
    return {
        "tensor": sums,
        "batch": sums + sharding.batch_split_sent_bytes(B, N, K, H, n, b),
        "length": sums + sharding.length_split_sent_bytes(B, N, K, H, n, b, 4),
        "gathered": sharding.gathered_sent_bytes(weights, n, b),
    }


def two_ways(D: int, F: int, n_axes: int, n_in: int) -> Any:
    chips = sharding.weight_stationary_crossover_chips(D, F, n_axes, n_in)
    return {"chips": chips, "X": sharding.weight_stationary_best_x(D, F, chips, n_axes, n_in)}


def after_the_cut(model: Sizes, kept: Sizes, B: int, S: int, width: int, bytes_per_s: float) -> Any:
    # no architecture of ours is without layers or channels: one of them is counted, and taken off
    none = {name for name in ("L", "F") if kept.get(name) == 0}
    kept = kept | dict.fromkeys(none, 1)
    left = pruning.pruned(Architecture("exercise", **model, tied_embeddings=True), **kept)
    sizes = {name: getattr(left, name) for name in "LDFNKHV"}
    params, cache = transformer_params(**sizes, tied=True), left.cache_bytes(S, width)
    if "F" in none:
        params -= 3 * left.L * left.D
    if "L" in none:
        params, cache = left.V * left.D, 0
    weights = kv_cache.weight_bytes(params, width)
    step_s = lt.memory_step_time_s(weights, B, cache, bytes_per_s)
    return {"params": params, "bytes": weights, "step_s": step_s}


def stored(n: int, n_zero: int, width: int, index_width: int) -> Any:
    """Fractions are exact where floats are not."""
    density = Fraction(n - n_zero, n)
    return {
        "dense": n * width,
        "bitmap": pruning.bitmap_bytes(n, density, width),
        "indexed": pruning.indexed_bytes(n, density, width, index_width),
        "two_four": pruning.two_four_bytes(n, width),
    }


def tokens_per_call(acceptances: list[float]) -> Any:
    """Wasted is what was drafted and is not among the tokens said; the target's own was not."""
    tokens = spec.expected_tokens_by_place(acceptances)
    return {
        "tokens": tokens,
        "all": math.prod(acceptances),
        "wasted": len(acceptances) + 1 - tokens,
    }


def price_of_verification(
    weight_bytes: float,
    cache_bytes: float,
    token_flops: float,
    B: int,
    gamma: int,
    bytes_per_s: float,
    flops_per_s: float,
) -> Any:
    sizes = weight_bytes, B, cache_bytes
    plain = lt.step_time_s(*sizes, B * token_flops, bytes_per_s, flops_per_s)
    ratio = spec.verification_ratio(*sizes, token_flops, gamma, bytes_per_s, flops_per_s)
    return {"plain_s": plain, "verify_s": ratio * plain, "ratio": ratio}


def draft_length(kept: list[int], draft_s: float, verify_s: list[float]) -> Any:
    tokens = [sum(min(n, gamma) + 1 for n in kept) / len(kept) for gamma in range(len(verify_s))]
    return spec.best_draft_length(tokens, draft_s, verify_s)


def rounding_errors(low: float, high: float, bits: int) -> Any:
    """Half a step: the formulas want something to round."""
    largest, span = max(-low, high), max(high, 0) - min(low, 0)
    return {
        "absmax": largest and quantization.absmax_step(largest, bits) / 2,
        "affine": span and quantization.affine_step(span, bits) / 2,
    }


def quantized_checkpoint(model: Sizes, bits: int, group: int, zero_bits: int) -> Any:
    """Matrices one by one; what is left of all parameters is plain, and so are the norms."""
    L, D, F = model["L"], model["D"], model["F"]
    q, kv = model["N"] * model["H"], model["K"] * model["H"]
    shapes = [(q, D), (kv, D), (kv, D), (D, q), (F, D), (F, D), (D, F)]
    matrices = sum(quantization.integer_bytes(*s, bits, group, 2, zero_bits) for s in shapes)
    in_layers = L * sum(O * I for O, I in shapes)
    plain = transformer_params(**model) - in_layers + (2 * L + 1) * D
    return {"quantized": L * matrices, "plain": 2 * plain}


def qlora_bytes(matrices: list[list[int]], rank: int) -> Any:
    base = sum(quantization.normal_float_bytes(O * I) for O, I in matrices)
    trained = sum(quantization.adapter_params(O, I, rank) for O, I in matrices)
    return {"base": base, "adapters": 12 * trained}


def quantized_step_s(B: int, n: int, bits: int, group: int, W: float, C: float) -> Any:
    each = quantization.integer_bits_per_weight(bits, group)
    return quantization.weights_step_s(B, n, each, W, C)


def stops_paying(bits: int, group: int, C: int, W: int) -> Any:
    each = quantization.integer_bits_per_weight(Fraction(bits), Fraction(group))
    return math.ceil(quantization.tokens_where_it_stops_paying(each, Fraction(C), Fraction(W)))


def waste(held: list[int], final: list[int], max_len: int, block_size: int) -> Any:
    """Places that will be used: all of a piece's up to the final length; in blocks those of the
    blocks that the held tokens fill, as far as tokens will come."""
    lost = [0, 0]
    kept = 0
    for now, end in zip(held, final, strict=True):
        places = now + paging.internal_waste_tokens(now, block_size)
        kept += min(end, places)
        lost[0] += max_len - end
        lost[1] += places - min(end, places)
    used = sum(held)
    return {
        "pieces": {"used": used, "reserved": sum(final) - used, "internal": lost[0]},
        "blocks": {"used": used, "reserved": kept - used, "internal": lost[1]},
    }


def gathered(lengths: list[int], block_size: int, K: int, H: int, bytes_per_number: int) -> Any:
    token_bytes = kv_cache.kv_bytes_per_token_per_layer(K, H, bytes_per_number)
    blocks = len(lengths) * paging.blocks_of(max(lengths), block_size)
    in_place = sum(lengths) * token_bytes
    padded = blocks * block_size * token_bytes
    return {"in_place": in_place, "one_by_one": 3 * in_place, "padded": 3 * padded}


def give_way(
    n_tokens: int,
    block_size: int,
    token_bytes: float,
    link_bytes_per_s: float,
    token_flops: float,
    flops_per_s: float,
) -> Any:
    places = paging.blocks_of(n_tokens, block_size) * block_size
    swap_s = paging.swap_s(places, token_bytes, link_bytes_per_s)
    recompute_s = paging.recompute_s(n_tokens, token_flops, flops_per_s)
    cheaper = "recompute" if recompute_s <= swap_s else "swap"
    return {"swap_s": swap_s, "recompute_s": recompute_s, "cheaper": cheaper}


THEORY: dict[str, Callable[..., Any]] = {
    "two_phases-forward_flops": forward_flops,
    "two_phases-generation_flops": generation_flops,
    "two_phases-metrics": metrics,
    "arithmetic_intensity-matmul": ai.matmul_intensity,
    "arithmetic_intensity-overlap": step_times,
    "arithmetic_intensity-predict": predict,
    "arithmetic_intensity-critical_batch": critical_batch,
    "kv_cache-kv_bytes": lambda L, D, N, K, H, width: kv_cache.kv_bytes_per_token(L, K, H, width),
    "kv_cache-max_batch": max_batch,
    "kv_cache-budget": budget,
    "kv_cache-step_bytes": step_bytes,
    "latent_attention-cache_bytes": cache_bytes,
    "latent_attention-flops": forms_flops,
    "mixture_of_experts-params": moe_params,
    "mixture_of_experts-expert_bytes": expert_bytes,
    "mixture_of_experts-critical": critical_batch_of_experts,
    "local_attention-receptive_field": field_of_stack,
    "local_attention-cache_bytes": hybrid_cache,
    "local_attention-step_bytes": hybrid_step,
    "latency_throughput-bytes_read": bytes_read,
    "latency_throughput-decode_point": decode_point,
    "latency_throughput-front": lt.pareto_front,
    "latency_throughput-cost": cost,
    "latency_throughput-step_time": step_time,
    "grouped_query_attention-intensity": gqa_intensity,
    "grouped_query_attention-repeated_bytes": repeated_bytes,
    "grouped_query_attention-batch_by_heads": batch_by_heads,
    "sharding-collective_time": collective_s,
    "sharding-sent_bytes": sent_by_layouts,
    "sharding-crossover": two_ways,
    "pruning-predict": after_the_cut,
    "pruning-stored": stored,
    "speculative_decoding-expected": tokens_per_call,
    "speculative_decoding-verify_price": price_of_verification,
    "speculative_decoding-draft_length": draft_length,
    "continuous_batching-burstiness": burstiness,
    "continuous_batching-finishing": finishing,
    "continuous_batching-padding": padding_shares,
    "continuous_batching-chunk": chunk_within,
    "continuous_batching-pass_time": pass_times,
    "continuous_batching-wait": wait_for_one,
    "paging-waste": waste,
    "paging-gathered": gathered,
    "paging-preempt": give_way,
    "quantization-error_bound": rounding_errors,
    "quantization-checkpoint_bytes": quantized_checkpoint,
    "quantization-qlora_bytes": qlora_bytes,
    "quantization-step_time": quantized_step_s,
    "quantization-stops_paying": stops_paying,
}


def same(theory: Any, reference: Any) -> bool:
    """Whole numbers and words exactly, others but for floating point, None for None only."""
    if isinstance(reference, dict):
        assert isinstance(theory, dict)
        return set(theory) == set(reference) and all(same(theory[k], reference[k]) for k in theory)
    if isinstance(reference, list | tuple):
        return len(theory) == len(reference) and all(map(same, theory, reference))
    if reference is None or theory is None:
        return reference is theory
    if isinstance(reference, int | str):
        return bool(theory == reference)
    return math.isclose(theory, reference, rel_tol=1e-12)


def seen(exercise_id: str, case: Case) -> Any:
    exercise = registry.load(exercise_id)
    return exercise.look(LocalAnswer(exercise.namespace(exercise.reference)), case)


def test_every_exercise_about_a_formula_has_its_function_of_theory() -> None:
    kinds = {i: registry.load(i).kind for i in ALL_IDS}
    assert {i for i, kind in kinds.items() if kind in ("formula", "predict")} <= set(THEORY)
    assert set(THEORY) <= set(ALL_IDS)


@pytest.mark.parametrize("exercise_id", THEORY)
def test_the_reference_is_what_theory_says_on_every_case(exercise_id: str) -> None:
    exercise = registry.load(exercise_id)
    compared = 0
    for seed in range(SEEDS):
        for case in exercise.make_cases(seed):
            theory = THEORY[exercise_id](*case.args, **case.kwargs)
            assert same(theory, seen(exercise_id, case)), case
            compared += 1
    assert compared >= 3 * SEEDS


@pytest.mark.parametrize("exercise_id", THEORY)
def test_a_wrong_answer_is_not_what_theory_says(exercise_id: str) -> None:
    """So that the comparison above can fail: every misconception differs on some case."""
    exercise = registry.load(exercise_id)
    for wrong in exercise.misconceptions:
        answer = LocalAnswer(exercise.namespace(wrong.answer))
        assert not all(_agrees(exercise, answer, case) for case in exercise.make_cases(0)), wrong


def _agrees(exercise: Any, answer: LocalAnswer, case: Case) -> bool:
    theory = THEORY[exercise.id](*case.args, **case.kwargs)
    try:
        return same(theory, exercise.look(answer, case))
    except Exception:  # it cannot answer this case at all
        return False
