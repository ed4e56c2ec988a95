"""Answers to the exercises of mixtures that are right but for one edge: a fixed case refuses each
of them. And what is said of inputs that are none is true."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from exercise_tools import refused_by_a_fixed_case

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer
from twophase.checks.judge import Bench
from twophase.checks.misconceptions import replaced
from twophase.checks.mixture_of_experts import (
    _copies,
    biased,
    critical,
    load_log,
    route,
    run,
    seats,
)

Tensor = torch.Tensor


def _bound(*args: Any) -> int:
    """B·k experts drawn one by one."""
    dense, expert, E, k, C, W, width = args

    def reached(B: int) -> bool:
        touched = E * (1 - (1 - 1 / E) ** (B * k))
        return bool(2 * B * (dense + k * expert) / C >= (dense + touched * expert) * width / W)

    return critical.first(reached)


def _first_count(log: Any) -> str:
    """Crowded with the number of experts that the first entry has."""
    E = len(log[0]["visits"])
    found = load_log.sums(log)
    if any(map(load_log.dead, found.values())):
        return "dead"
    if any(max(v) * E > 2 * sum(v) for v in found.values()):
        return "skewed"
    bursts = sum(max(e["visits"]) * E > 2 * sum(e["visits"]) for e in log)
    return "bursty" if 2 * bursts > len(log) else "healthy"


def _layer_by_layer(turn: int) -> Any:
    """What the first layer that has a label says, or with a `turn` of -1 the last one."""

    def diagnose(log: Any) -> str:
        for visits in [*load_log.sums(log).values()][::turn]:
            if load_log.dead(visits):
                return "dead"
            if load_log.skewed(visits):
                return "skewed"
        bursts = sum(load_log.skewed(e["visits"]) for e in log)
        return "bursty" if 2 * bursts > len(log) else "healthy"

    return diagnose


NEARLY_RIGHT: dict[str, tuple[str, dict[str, Any]]] = {
    "experts drawn one by one": ("critical", {"critical": _bound}),
    "k/E as a float": (
        "seats",
        {
            "seats": replaced(
                seats.reference,
                {"-(-percent * n * k // (100 * E))": "-int(-(n * (k / E) * percent / 100) // 1)"},
            )
        },
    ),
    "the share of a hundredth as a float": (
        "seats",
        {
            "seats": replaced(
                seats.reference,
                {"-(-percent * n * k // (100 * E))": "math.ceil(percent * (n * k / (100 * E)))"},
            )
        },
    ),
    "500 entries": (
        "load_log",
        {"diagnose": replaced(load_log.reference, {"sums(log)": "sums(log[:500])"})},
    ),
    "the first entry's experts": ("load_log", {"diagnose": _first_count}),
    "the first layer with a label": ("load_log", {"diagnose": _layer_by_layer(1)}),
    "the last layer with a label": ("load_log", {"diagnose": _layer_by_layer(-1)}),
    "a byte in a thousand million too much": (
        "choose",
        {
            "choose": lambda model, chip, B, n: _copies.best(
                model, {**chip, "memory_bytes": chip["memory_bytes"] * (1 + 1e-9)}, B, n
            )
        },
    ),
    "logits of -60 at least": (
        "route",
        {"route": lambda logits, k, way: route.reference(logits.clamp(min=-60), k, way)},
    ),
    "weights without their sign": (
        "run",
        {"run": lambda x, experts, weights, e: run.reference(x, experts, weights.abs(), e)},
    ),
}


@pytest.mark.parametrize("name", NEARLY_RIGHT)
def test_a_fixed_case_refuses_what_is_nearly_right(name: str) -> None:
    slug, functions = NEARLY_RIGHT[name]
    refused_by_a_fixed_case(f"mixture_of_experts-{slug}", functions)


def test_experts_drawn_one_by_one_are_named() -> None:
    verdict = Bench(registry.load("mixture_of_experts-critical")).judge(
        LocalAnswer({"critical": _bound})
    )
    assert verdict.misconception == "one_expert_drawn_at_a_time"


@pytest.mark.parametrize(
    ("room", "name"),
    [
        ("n * k / E * (percent / 100)", "share_in_floats"),
        ("n / E * k * percent / 100", "share_in_floats"),
        ("n * k * (percent / 100) / E", "factor_in_floats"),
    ],
)
def test_room_in_floats_is_named(room: str, name: str) -> None:
    whole = "-(-percent * n * k // (100 * E))"
    nearly = replaced(seats.reference, {whole: f"math.ceil({room})"})
    verdict = Bench(registry.load("mixture_of_experts-seats")).judge(LocalAnswer({"seats": nearly}))
    assert verdict.misconception == name


@pytest.mark.parametrize("k", [2.0, 4, 0])
def test_only_k_of_1_is_said_to_be_1(k: Any) -> None:
    found = [{"logits": [[1, 2, 3]], "bias": [0.9, 0, 0], "k": k}]
    functions = {**biased.EXERCISE.reference, "expose": lambda: found}  # type: ignore[dict-item]
    verdict = Bench(registry.load("mixture_of_experts-biased")).judge(LocalAnswer(functions))
    assert verdict.status == "wrong"
    assert verdict.misconception is None
    assert "k is a whole number from 2" in verdict.message
