"""Answers to the exercises of quantization that are right but for one edge: a fixed case refuses
each of them."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from exercise_tools import refused_by_a_fixed_case

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer
from twophase.checks.judge import Bench
from twophase.checks.misconceptions import replaced
from twophase.checks.quantization import (
    _formats,
    activation_log,
    awq,
    cache_axes,
    checkpoint_bytes,
    float_code,
    gptq_column,
    grids,
    groups,
    outlier_product,
    pack,
    qlora_bytes,
    snippet,
)

Tensor = torch.Tensor
SCATTERED = '    if 2 * sum(bool(outliers(e["x"])) for e in log) > len(log):\n'
MASSIVE = '    if any(massive(rows) for rows in layers):\n        return "tokens"\n'


def _diagnosed(parts: dict[str, str]) -> dict[str, Any]:
    return {"diagnose": replaced(activation_log.reference, parts)}


def _first_width(log: Any) -> str:
    """A mean is over as many channels as the first entry has, whatever layer that is of."""
    C = len(log[0]["x"])

    def found(x: list[int]) -> list[int]:
        return [c for c, v in enumerate(x) if abs(v) * C > 6 * sum(map(abs, x))]

    layers = activation_log.by_layer(log).values()
    if any(
        2 * sum(c in found(x) for x in of) > len(of) for of in layers for c in range(len(of[0]))
    ):
        return "channels"
    if 2 * sum(bool(found(e["x"])) for e in log) > len(log):
        return "scattered"
    return "tokens" if any(map(activation_log.massive, layers)) else "healthy"


def _layer_by_layer(turn: int) -> dict[str, Any]:
    """What the first layer that has a label says, or with a `turn` of -1 the last one."""

    def diagnose(log: Any) -> str:
        scattered = 2 * sum(bool(activation_log.outliers(e["x"])) for e in log) > len(log)
        for rows in [*activation_log.by_layer(log).values()][::turn]:
            if activation_log.stands_out(rows):
                return "channels"
            if not scattered and activation_log.massive(rows):
                return "tokens"
        return "scattered" if scattered else "healthy"

    return {"diagnose": diagnose}


def _without_a_last_zero(codes: list[int], bits: int) -> list[int]:
    """The byte that is begun is written only if something is in it."""
    found = pack.pack(codes, bits)
    begun = len(codes) * bits % 8 > 0
    return found[:-1] if begun and found[-1] == 0 else found


def _in_float32(w: Tensor, h_inverse: Tensor, rounded: Tensor) -> Any:
    moved, left = gptq_column.reference(w.float(), h_inverse.float(), rounded.float())
    return moved.double(), left.double()


def _embeddings_computed(model: Any, chip: Any, B: int, kind: Any) -> float:
    """Seconds of a step in which the other weights are multiplied, too."""
    more = {**model, "n_params": model["n_params"] + model["other_bytes"] / 2}
    reading = _formats.reading_s(model, chip, B, kind)
    return float(max(reading, _formats.computing_s(more, chip, B, kind)))


NEARLY_RIGHT: dict[str, tuple[str, dict[str, Any]]] = {
    "outliers counted for entries": (
        "activation_log",
        _diagnosed({'sum(bool(outliers(e["x"]))': 'sum(len(outliers(e["x"]))'}),
    ),
    "a massive token before what is scattered": (
        "activation_log",
        _diagnosed({SCATTERED: MASSIVE + SCATTERED}),
    ),
    "900 entries": ("activation_log", _diagnosed({"layers = ": "log = log[:900]\n    layers = "})),
    "the first entry's width": ("activation_log", {"diagnose": _first_width}),
    "the first layer with a label": ("activation_log", _layer_by_layer(1)),
    "the last layer with a label": ("activation_log", _layer_by_layer(-1)),
    "steps below 1e-8 taken for 0": (
        "cache_axes",
        {"round_cached": replaced(cache_axes.reference, {"step == 0": "step < 1e-8"})},
    ),
    "a token's scale of 1e-5 / 127 at least": (
        "outlier_product",
        {
            "product": replaced(
                outlier_product.reference,
                {".amax(1, keepdim=True)": ".amax(1, keepdim=True).clamp(min=1e-5)"},
            )
        },
    ),
    "a row's largest size 1e-5 at least": (
        "awq",
        {
            "choose_alpha": replaced(
                awq.reference, {".amax(1, keepdim=True)": ".amax(1, keepdim=True).clamp(min=1e-5)"}
            )
        },
    ),
    **{
        f"the least error sought from {start:g} on": (
            "awq",
            {
                "choose_alpha": replaced(
                    awq.reference, {"min(found)": f"min([({start}, alphas[0]), *found])"}
                )
            },
        )
        for start in (1e3, 1e6, 1e9, 3.4e38)
    },
    **{
        f"{name} bytes counted in floats": (
            "checkpoint_bytes",
            {"checkpoint_bytes": replaced(checkpoint_bytes.reference, parts)},
        )
        for name, parts in {
            "quantized": {"L * sum(": "int(1.0 * L * sum(", "in matrices),": "in matrices)),"},
            "plain": {"2 * (tables": "int(2.0 * (tables", "+ 1) * D),": "+ 1) * D)),"},
        }.items()
    },
    "codes of 8 bits down to -128": (
        "groups",
        {
            "quantize": replaced(
                groups.reference, {"clamp(-last, last)": "clamp(-last - (bits == 8), last)"}
            )
        },
    ),
    "500 matrices": (
        "qlora_bytes",
        {"qlora_bytes": replaced(qlora_bytes.reference, {"in matrices": "in matrices[:500]"})},
    ),
    "500 codes": (
        "float_code",
        {"decode": replaced(float_code.reference, {"in codes": "in codes[:500]"})},
    ),
    "no NaN where one bit is the mantissa": (
        "float_code",
        {
            "decode": replaced(
                float_code.reference, {'top == "nan" and': 'top == "nan" and mantissa_bits > 1 and'}
            )
        },
    ),
    "512 numbers": (
        "grids",
        {"two_grids": lambda numbers, bits: grids.reference(numbers[:512], bits)},
    ),
    "C/W as a float": (
        "stops_paying",
        {"stops_paying": lambda bits, g, C, W: math.ceil(C / W * (bits + 16 / g) / 16)},
    ),
    "one division of whole numbers, as a float": (
        "stops_paying",
        {"stops_paying": lambda bits, g, C, W: math.ceil((bits * g + 16) * C / (16 * g * W))},
    ),
    "embeddings multiplied": (
        "choose",
        {"choose": _formats.chosen(first=_embeddings_computed)},
    ),
    "ten formats": (
        "choose",
        {"choose": lambda model, chip, B, formats: _formats.chosen()(model, chip, B, formats[:10])},
    ),
}


@pytest.mark.parametrize("name", NEARLY_RIGHT)
def test_a_fixed_case_refuses_what_is_nearly_right(name: str) -> None:
    slug, functions = NEARLY_RIGHT[name]
    refused_by_a_fixed_case(f"quantization-{slug}", functions)


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_in_floats_is_named(seed: int) -> None:
    def stops_paying(bits: int, group: int, C: int, W: int) -> int:
        return math.ceil((bits / 8 + 2 / group) * C / (2 * W))

    bench = Bench(registry.load("quantization-stops_paying"), seed)
    verdict = bench.judge(LocalAnswer({"stops_paying": stops_paying}))
    assert verdict.misconception == "bits_in_floats"


@pytest.mark.parametrize("seed", range(8))
def test_no_seed_lets_a_last_byte_of_zeros_be_left_out(seed: int) -> None:
    functions = {"pack": _without_a_last_zero, "unpack": pack.unpack}
    bench = Bench(registry.load("quantization-pack"), seed)
    assert bench.judge(LocalAnswer(functions)).status == "wrong"


@pytest.mark.parametrize("seed", range(8))
def test_no_seed_lets_a_column_be_moved_in_float32(seed: int) -> None:
    bench = Bench(registry.load("quantization-gptq_column"), seed)
    assert bench.judge(LocalAnswer({"gptq_column": _in_float32})).status == "wrong"


@pytest.mark.parametrize(
    ("absmax", "says"),
    [
        (1.0, "'absmax' should be a list of 2, and is 1"),
        ((2.5, None), r"'absmax'\[1\] should be a list of 4, and is None"),
        (
            (2.5, [1.0, 0.0, 0.0, 1.0]),
            r"'absmax'\[1\]\[0\] .*a whole number, an int, and is the float 1\.0",
        ),
    ],
)
def test_grids_of_another_shape_are_told_what_they_should_be(absmax: Any, says: str) -> None:
    def two_grids(numbers: list[float], bits: int) -> dict[str, Any]:
        return {**grids.reference(numbers, bits), "absmax": absmax}

    verdict = Bench(grids.EXERCISE).judge(LocalAnswer({"two_grids": two_grids}))
    assert re.search(says, verdict.message)


def _other_names(w: Tensor, group: int = 128, bits: int = 4) -> Any:
    return snippet.right(w, group, bits)


@pytest.mark.parametrize(
    ("quantize_group", "says"),
    [
        (_other_names, "unexpected keyword argument 'weight'"),
        (snippet.exchanged, "have each other's names"),
    ],
)
def test_the_names_of_a_quantizers_parameters_are_asked_for(quantize_group: Any, says: str) -> None:
    functions = {"expose": snippet.expose, "quantize_group": quantize_group}
    refused_by_a_fixed_case("quantization-snippet", functions)
    bench = Bench(snippet.EXERCISE)
    verdict = bench.judge(LocalAnswer(functions))
    wrong = [o.case for o in verdict.outcomes if not o.right]
    assert wrong == [case.name for case in bench.cases if case.kwargs]
    assert says in verdict.message
