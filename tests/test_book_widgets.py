"""Every {play} box of the chapters in every option and at both ends and the middle of each slider:
the numbers that its script shows are those of `theory`, and what does not fit has no rate."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from twophase.models.family import FAMILY
from twophase.theory import arithmetic_intensity as ai
from twophase.theory import grouped_query_attention as gqa
from twophase.theory import kv_cache, paging, pruning, quantization, sharding, two_phases
from twophase.theory import latency_throughput as lt
from twophase.theory import latent_attention as mla
from twophase.theory import local_attention as local
from twophase.theory import mixture_of_experts as moe
from twophase.theory import speculative_decoding as speculation
from twophase.theory.catalog import HARDWARE, MODELS
from twophase.theory.hardware import bytes_per_value

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))

from book_play_script import Script  # noqa: E402
from book_play_spec import Play, read_spec  # noqa: E402

BOX = re.compile(r"^:::\{play\} (\S+)\n(.*?)^:::$", re.M | re.S)
BOXES = {
    name: body
    for page in sorted((ROOT / "book").glob("[0-9][0-9]_*.md"))
    for name, body in BOX.findall(page.read_text("utf8"))
}
Numbers = dict[str, Any]
NONE = math.inf  # what the page writes as "none"


def generation_cost(m: int, n: int, arch: str) -> Numbers:
    name, _, ours = arch.partition(" ")
    a = FAMILY[name].architecture(name) if ours else MODELS[name]
    params = a.n_matmul_params()
    naive, cached = (
        f(m, n, params, a.L, a.N, a.H)
        for f in (two_phases.naive_generation_flops, two_phases.cached_generation_flops)
    )
    return {
        "n_params": params,
        "naive": naive / 1e12,
        "cached": cached / 1e12,
        "prefill": two_phases.dense_prefill_flops(1, m, params, a.L, a.N, a.H) / 1e12,
        "ratio": naive / cached,
    }


def rows_on_the_roofline(B: int, chip: str) -> Numbers:
    C, W = HARDWARE[chip].flops_per_s["bf16"], HARDWARE[chip].hbm_bytes_per_s
    D, F = 4096, 14336
    intensity, ridge = ai.matmul_intensity(B, D, F), ai.critical_intensity(C, W)
    return {
        "work": ai.matmul_flops(B, D, F),
        "moved": ai.matmul_bytes(B, D, F),
        "intensity": intensity,
        "reached": ai.roofline_flops_per_s(intensity, C, W),
        "ridge": ridge,
        "binds": "computing" if intensity >= ridge else "reading",
    }


def roofline_calculator(B: int, S: int, bits: str, chip: str) -> Numbers:
    a, hw, b = MODELS["llama-3-8b"], HARDWARE[chip], bytes_per_value(bits)
    C, W = hw.flops_per_s["bf16"], hw.hbm_bytes_per_s
    read, cache, flops = a.step_weight_bytes(B, b), a.cache_bytes(S), a.decode_step_flops(B, S)
    moved = lt.step_bytes(read, B, cache)
    stored = kv_cache.weight_bytes(a.n_params(), b)
    need = kv_cache.memory_bytes(stored, B * cache)
    times = {
        "compute": lt.compute_time_s(flops, C),
        "reading": lt.memory_step_time_s(read, B, cache, W),
        "overlapped": ai.time_overlapped_s(flops, moved, C, W),
        "serial": ai.time_serial_s(flops, moved, C, W),
    }
    times["share"] = 100 * times["compute"] / times["overlapped"]
    above = a.critical_batch_of_step(S, C, W, b)
    return {
        "weights": read,
        "cache": cache,
        "need": need,
        "have": hw.hbm_bytes,
        "most": kv_cache.max_batch(hw.hbm_bytes, stored, cache),
        "token": a.decode_step_flops(1, S),
        "work": flops,
        "moved": moved,
        "intensity": flops / moved,
        "ridge": hw.critical_intensity("bf16"),
        "crit": ai.critical_batch(C, W, b),
        "crit_step": above,
        **_only_if(need <= hw.hbm_bytes, times),
    }


def kv_wall(S: int, B: int, K: int, format: str, wformat: str, chip: str) -> Numbers:
    a, memory = MODELS["llama-2-7b"].with_kv_heads(int(K)), HARDWARE[chip].hbm_bytes
    b = bytes_per_value(format)
    weights = kv_cache.weight_bytes(a.n_params(), bytes_per_value(wformat))
    one, token = a.cache_bytes(S, b), a.cache_bytes_per_token(b)
    return {
        "n_params": a.n_params(),
        "token": token,
        "weights": weights,
        "one": one,
        "cache": B * one,
        "total": kv_cache.memory_bytes(weights, B * one),
        "fits": kv_cache.max_batch(memory, weights, one),
        "longest": kv_cache.max_context(memory, weights, B, token),
        "have": memory,
    }


def latency_wall(B: int, S: int, K: int, n_chips: int, chip: str) -> Numbers:
    a, hw = MODELS["llama-2-13b"].with_kv_heads(int(K)), HARDWARE[chip]
    C, W = hw.flops_per_s["bf16"], hw.hbm_bytes_per_s
    w, one = kv_cache.weight_bytes(a.n_params()), a.cache_bytes(S)
    read, flops = a.step_weight_bytes(B), a.decode_step_flops(B, S)
    need, have = kv_cache.memory_bytes(w, B * one), n_chips * hw.hbm_bytes
    step = lt.step_time_s(read, B, one, flops, W, C, n_chips=n_chips)
    rate = lt.throughput_tokens_per_s(B, step)
    needs_room = {
        "step": step,
        "compute": lt.compute_time_s(flops, C, n_chips),
        "floor": lt.step_time_floor_s(read, W, n_chips),
        "rate": rate,
        "hours": lt.chip_hours_per_million_tokens(rate, n_chips),
    }
    return {
        "n_params": a.n_params(),
        "w": w,
        "one": one,
        "caches": B * one,
        "need": need,
        "have": have,
        "wall": kv_cache.max_batch(have, w, one),
        **_only_if(need <= have, needs_room),
    }


def gqa_intensity(S: int, G: int, T: int, format: str, chip: str) -> Numbers:
    hw, b = HARDWARE[chip], bytes_per_value(format)
    C, W = hw.flops_per_s["bf16"], hw.hbm_bytes_per_s
    return {
        "found": ai.attention_intensity_simple(T, S, G, b),
        "ridge": hw.critical_intensity("bf16"),
        "group": gqa.critical_group(S, C, W, T, b),
    }


def hybrid_stack(S: int, g: int, w: int, B: int) -> Numbers:
    one = kv_cache.hybrid_bytes_per_sequence(S, g, 48 - g, w, 8, 128)
    full = kv_cache.kv_bytes_per_sequence(S, 48, 8, 128)
    balance = local.balance_context(g, 48 - g, w)
    assert balance >= w, "below the window all layers hold alike: no balance there"
    return {
        "local": 48 - g,
        "one": one,
        "all": B * one,
        "full": full,
        "times": full / one,
        "balance": balance,
    }


def sharding_hops(read: float, n: int, sums: int, hop: float) -> Numbers:
    return {
        "step": sharding.latency_step_s(read, n, sums, hop),
        "best": sharding.latency_best_chips(read, sums, hop),
    }


def mla_forms(T: int, S: int, R: int) -> Numbers:
    sizes = (1, T, S, 128, R, 128, 64, 128)
    return {
        "expanded": mla.expanded_flops(*sizes),
        "absorbed": mla.absorbed_flops(*sizes),
        "crossing": mla.crossover_queries(S, R, 128, 128),
        "intensity": mla.absorbed_intensity(T, S, 128, R, 64),
    }


def experts_touched(B: int, E: int, k: int) -> Numbers:
    return {
        "touched": moe.expected_experts(B, E, k),
        "each": moe.visits_per_touched_expert(B, E, k),
        "n_bytes": moe.expected_expert_bytes(B, E, k, 1, 3 * 2048 * 2048),
    }


def draft_length(gamma: int, kept: float, dear: float, B: int, S: int) -> Numbers:
    a, chip = MODELS["llama-3.1-8b"], HARDWARE["H100 SXM"]
    price = speculation.verification_ratio(
        a.step_weight_bytes(B, 2),
        B,
        a.cache_bytes(S),
        a.decode_step_flops(1, S),
        gamma,
        chip.hbm_bytes_per_s,
        chip.peak_flops_per_s("bf16"),
    )
    return {
        "tokens": speculation.expected_tokens(kept / 100, gamma),
        "held": a.n_params() * 2 + B * a.cache_bytes(S),
        "price": price,
        "gain": speculation.speedup(kept / 100, gamma, dear / 100, price),
    }


def outlier_grid(largest: float, bits: int) -> Numbers:
    step = quantization.absmax_step(largest, bits)
    return {
        "step": step,
        "left": 1 + 2 * sum((level - 0.5) * step <= 3 for level in range(1, 2 ** (bits - 1))),
        "error": quantization.rounding_error(step),
    }


def zeros_in_a_file(kept: float, size: int) -> Numbers:
    n = 1_000_000
    return {
        "dense": n * size,
        "bitmap": pruning.bitmap_bytes(n, kept, size),
        "indexed": pruning.indexed_bytes(n, kept, size),
        "fixed": pruning.two_four_bytes(n, size),
    }


def prompt_chunks(pieces: float, n_in: float, B: float, S: float) -> Numbers:
    llama, rates = MODELS["llama-3.1-8b"], (3.35e12, 989e12)
    weights, held = llama.step_weight_bytes(B, 2), B * llama.cache_bytes(S)
    step, token = llama.decode_step_flops(B, S), llama.decode_step_flops(1, n_in / 2)
    with_piece = held + llama.cache_bytes(n_in / 2), step + token * n_in / pieces
    gap = lt.step_time_s(weights, 1, *with_piece, *rates)
    return {
        "chunk": n_in / pieces,
        "step": lt.step_time_s(weights, 1, held, step, *rates),
        "gap": gap,
        "until": pieces * gap,
    }


def block_size(size: int, S: int, kb: float, cost: float) -> Numbers:
    kv, look = 1000 * kb, 1000 * cost
    total = paging.overhead_bytes(S, size, kv, look)
    return {
        "empty": (size - 1) / 2,
        "waste": (size - 1) / 2 * kv,
        "blocks": paging.blocks_of(S, size),
        "reads": S / size * look,
        "total": total,
        "held": 100 * total / (S * kv),
        "best": paging.best_block_size(S, kv, look),
    }


def _only_if(fits: bool, numbers: Numbers) -> Numbers:
    return numbers if fits else dict.fromkeys(numbers, "does not fit")


THEORY: dict[str, Callable[..., Numbers]] = {
    "generation-cost": generation_cost,
    "rows-on-the-roofline": rows_on_the_roofline,
    "roofline-calculator": roofline_calculator,
    "kv-wall": kv_wall,
    "latency-wall": latency_wall,
    "gqa-intensity": gqa_intensity,
    "mla-forms": mla_forms,
    "experts-touched": experts_touched,
    "sharding-hops": sharding_hops,
    "hybrid-stack": hybrid_stack,
    "outlier-grid": outlier_grid,
    "zeros-in-a-file": zeros_in_a_file,
    "draft-length": draft_length,
    "prompt-chunks": prompt_chunks,
    "block-size": block_size,
}
boxes = pytest.mark.parametrize("box", BOXES)


def places(play: Play, script: Script) -> Iterator[tuple[dict[str, Any], dict[str, float]]]:
    """Every option, both ends and the middle of each slider, all with all: what was chosen, and
    the state that the script makes of it."""
    choices: list[list[tuple[str, Any, dict[str, float]]]] = []
    for item in play.inputs:
        if item.options:
            choices.append([(item.name, label, dict(set_)) for label, set_ in item.options.items()])
            continue
        ends = range(len(item.values)) if item.values else (0, 0.5, 1)
        asked = "dukpy.at.map(at => play.valueOf(play.inputOf(spec, dukpy.n), at))"
        values = script.ask(asked, n=item.name, at=list(ends))
        choices.append([(item.name, value, {item.name: value}) for value in values])
    for chosen in product(*choices):
        state = {name: number for *_, numbers in chosen for name, number in numbers.items()}
        yield {name: value for name, value, _ in chosen}, state


PREFIXES = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "m": 1e-3, "µ": 1e-6, "n": 1e-9}
POWER = re.compile(r"×10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
DIGITS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def said(text: str, unit: str) -> float:
    """The number that a text of the page stands for."""
    if text == "none":
        return NONE
    text = re.sub(r"^10(?=[⁻⁰¹²³⁴⁵⁶⁷⁸⁹])", "1×10", text)  # 10⁷
    power = POWER.search(text)
    factor = 10.0 ** int(power[1].translate(DIGITS)) if power else 1.0
    digits, _, after = POWER.sub("", text).replace(",", "").removesuffix("%").partition(" ")
    prefix = after.removesuffix(unit) if unit else ""
    return float(digits) * factor * PREFIXES.get(prefix, 1.0)


ASKED = """dukpy.states.map(v => ({...play.told(spec, formulas, v),
  exact: Object.fromEntries(Object.entries(formulas).map(([k, f]) => [k, f(v)]))}))"""
MOST = {"roofline-calculator": "most", "kv-wall": "fits", "latency-wall": "wall"}


@boxes
def test_every_number_shown_is_theorys_in_every_option_and_at_the_ends_of_each_slider(
    box: str,
) -> None:
    play = read_spec(yaml.safe_load(BOXES[box]))
    script, units = Script(play), {output.name: output.unit for output in play.outputs}
    chosen, states = zip(*places(play, script), strict=True)
    assert (box in MOST) == (play.room is not None)
    for choice, told in zip(chosen, script.ask(ASKED, states=list(states)), strict=True):
        expected = THEORY[box](**choice)
        assert list(told["outputs"]) == list(expected), choice
        for name, value in expected.items():
            text, number = told["outputs"][name], told["exact"][name]
            if isinstance(value, str):
                assert text == value, (name, choice)
                continue
            found = NONE if number is None else number
            assert math.isclose(found, value, rel_tol=1e-9), (name, choice)
            # three digits are shown
            assert math.isclose(said(text, units[name]), value, rel_tol=5.01e-3), (name, choice)
        if play.room:
            assert told["fits"] == (choice["B"] <= told["exact"][MOST[box]]), choice
            assert told["room"].startswith("Fits: " if told["fits"] else "Does not fit: ")


@boxes
def test_a_box_is_drawn_without_a_hole_in_the_first_state_and_at_the_ends(box: str) -> None:
    play = read_spec(yaml.safe_load(BOXES[box]))
    script = Script(play)
    every = [state for _, state in places(play, script)]
    for state in (script.start(), every[0], every[-1], every[len(every) // 2]):
        shown = script.shown(state)
        assert not re.search(r"NaN|Infinity|undefined|null", str(shown)), state
        assert "<path" in shown["drawing"]


@boxes
def test_of_a_mark_out_of_the_frame_the_name_stands_at_that_edge_with_an_arrow(box: str) -> None:
    play = read_spec(yaml.safe_load(BOXES[box]))
    if not play.plot or not play.plot.marks:
        return
    script, axis = Script(play), play.plot.axis
    every = [state for _, state in places(play, script)]
    for state in (script.start(), *every[:: max(1, len(every) // 12)], every[-1]):
        drawn, numbers = script.shown(state)["drawing"], script.numbers(state)
        for number, mark in enumerate(play.plot.marks):
            value = numbers[f"mark{number}"]
            said = re.findall(rf"(← |↓ |↑ )?{mark.label}( →)?</text>", drawn)
            if value is None:
                assert not said, (mark.label, state)
                continue
            assert len(said) == 1, (mark.label, state)
            if mark.axis == "x":
                low, high = axis.low * (1 - 1e-9), axis.high * (1 + 1e-9)
                assert said[0] == ("← " * (value < low), " →" * (value > high)), (value, state)


def test_every_number_of_kv_heads_on_a_slider_divides_the_query_heads() -> None:
    for box, model in (("kv-wall", "llama-2-7b"), ("latency-wall", "llama-2-13b")):
        play = read_spec(yaml.safe_load(BOXES[box]))
        heads = next(item.values for item in play.inputs if item.name == "K")
        assert all(MODELS[model].N % K == 0 for K in heads)
        assert heads[-1] == MODELS[model].K


def test_beyond_the_last_row_the_intensity_is_that_of_endless_rows() -> None:
    play = read_spec(yaml.safe_load(BOXES["rows-on-the-roofline"]))
    script = Script(play)
    end = script.numbers(script.start())["end"]
    assert end == pytest.approx(ai.matmul_intensity(10**15, 4096, 14336), rel=1e-9)
    assert (MODELS["llama-3-8b"].D, MODELS["llama-3-8b"].F) == (4096, 14336)


@boxes
@pytest.mark.parametrize("width", [330, 640])
def test_the_line_of_a_mark_runs_through_no_label_of_another(box: str, width: int) -> None:
    play = read_spec(yaml.safe_load(BOXES[box]))
    script = Script(play)
    asked = "play.shown(spec, formulas, dukpy.state, dukpy.width).drawing"
    drawn = script.ask(asked, state=script.start(), width=width)
    lines = re.findall(r'"tp-mark" x1="([\d.]+)" x2="\1" y1="([\d.]+)"', drawn)
    labels = re.findall(r'"tp-mark-label" x="([\d.]+)" y="([\d.]+)" [^>]*"middle">([^<]+)', drawn)
    assert len(lines) == len(labels)
    for x, top in lines:
        for middle, y, label in labels:
            beside = abs(float(x) - float(middle)) > 3.8 * len(label)  # 12 pixels high, bold
            assert beside or float(y) < float(top), label
