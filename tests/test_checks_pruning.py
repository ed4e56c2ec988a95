"""The exercises of pruning beside the library: references say what the library says, and the
printed code is what the check takes it for."""

from __future__ import annotations

import random
import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from exercise_tools import refused_by_a_fixed_case

from twophase.checks.misconceptions import replaced
from twophase.checks.pruning import (
    _removals,
    choose,
    config,
    cut_heads,
    distill,
    healing_log,
    mapping,
    predict,
    turned,
    two_four,
)
from twophase.kernels.pruning import logits_loss, wanda
from twophase.kernels.pruning import two_four as two_of_four
from twophase.models.blank import blank
from twophase.models.config import Config
from twophase.models.pruning import Kept, cut
from twophase.models.pruning.importance import _turned

NOTEBOOK = Path(__file__).resolve().parent.parent / "solutions" / "13_pruning.ipynb"


def test_the_reference_of_cut_heads_is_what_the_library_cuts() -> None:
    c = Config(L=1, D=24, F=16, N=6, K=3, H=4, V=11)
    model = blank(c)
    model.load_state_dict(
        {k: torch.randn(v.shape) for k, v in model.state_dict().items()}, assign=True
    )
    names = [f"layers.0.self_attn.{x}_proj.weight" for x in "qkvo"]
    for kept in ([0, 1, 4, 5], [1, 2, 5], [0, 1], [3]):
        smaller = cut(model, Kept(heads={0: kept})).state_dict()
        found = cut_heads.reference(*(model.state_dict()[n] for n in names), c.H, kept)
        assert all(torch.equal(x, smaller[n]) for x, n in zip(found, names, strict=True))


def test_the_configs_of_the_exercise_give_the_shapes_that_are_left() -> None:
    transformers = pytest.importorskip("transformers")
    for case in config.cases(random.Random(0)):
        old, kept = case.args
        if old is not config.LLAMA:
            continue
        new = transformers.LlamaConfig(**config.reference(old, kept))
        with torch.device("meta"):
            layer = transformers.models.llama.modeling_llama.LlamaDecoderLayer(new, 0)
        K = kept.get("kv_heads", 8)
        assert layer.self_attn.q_proj.weight.shape == (K * 4 * 128, kept.get("width", 4096))
        assert layer.self_attn.k_proj.weight.shape == (K * 128, kept.get("width", 4096))
        assert layer.mlp.up_proj.weight.shape[0] == kept.get("channels", 14336)


def test_the_printed_mapping_is_the_one_that_the_check_knows() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    (text,) = (c.source for c in cells if c.id == "pruning-mapping-task")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    names: dict[str, object] = {}
    exec(code, names)
    for case in mapping.cases(random.Random(1)):
        if isinstance(case.args[0], list):
            assert names["kv_of"](*case.args) == mapping.printed(*case.args)  # type: ignore[operator]


def test_the_reference_of_distill_is_the_kernels_loss() -> None:
    for case in distill.cases(random.Random(1)):
        own = float(distill.reference(*case.args))
        assert float(logits_loss(*case.args)) == pytest.approx(own, rel=1e-4, abs=1e-5), case.name


def test_the_reference_of_two_four_is_the_kernels_mask() -> None:
    for case in two_four.cases(random.Random(1)):
        assert torch.equal(two_four.reference(*case.args), two_of_four(wanda(*case.args)))


def test_the_reference_of_turned_is_the_librarys_measure_of_a_layer() -> None:
    for case in turned.cases(random.Random(1)):
        (streams,) = case.args
        pairs = [torch.stack(pair)[:, None] for pair in pairwise(streams)]  # [2, 1, tokens, D]
        found = [float(_turned(pair, None, 1)) for pair in pairs]
        assert found == pytest.approx(turned.reference(streams), abs=1e-9), case.name


def test_what_the_names_of_tiny_models_promise() -> None:
    """A trap for each way to rank: the named model is lost by it, and by more than 5 %."""

    def over(name: str, answer) -> float:  # type: ignore[no-untyped-def]
        m = _removals.EDGES[name]
        gone = answer(lambda s: _removals.loss_of(m, set(s)), m["sizes"], m["budget"])
        return _removals.loss_of(m, set(gone)) / _removals.best_loss(m)

    assert over("two that stand in for each other", choose.ranked_once) > choose.NEAR
    assert over("two of one circuit", choose.greedy) > choose.NEAR
    assert over("a trap for one step at a time", choose.greedy) > choose.NEAR
    assert (
        over("the cheapest by the byte leaves too much over", choose.ranked_by_byte) > choose.NEAR
    )
    for m in _removals.EDGES.values():
        n = len(m["sizes"])
        assert 1 <= n <= 10
        assert 2**n <= _removals.MOST_CALLS


def _by_name(loss: Any, groups: Any) -> list[float]:
    whole = loss([])
    return list({tuple(group): loss(group) - whole for group in groups}.values())


def _with_a_little(student: torch.Tensor, teacher: torch.Tensor, T: float) -> Any:
    s, t = (x.div(T).softmax(-1) for x in (student, teacher))
    return (t * ((t + 1e-8) / (s + 1e-8)).log()).sum(-1).mean() * T**2


def _mapped(parts: dict[str, str]) -> dict[str, Any]:
    return {**mapping.EXERCISE.reference, "kv_of": replaced(mapping.kv_of, parts)}


def _said(log_probs: str) -> dict[str, Any]:
    old = "said = (student / temperature).log_softmax(-1)"
    return {"distillation_loss": replaced(distill.reference, {old: f"said = {log_probs}"})}


def _scored(scores: str) -> dict[str, Any]:
    return {"two_four": replaced(two_four.reference, {"weight.abs() * input_norms": scores})}


def _by_pairs(loss: Any, sizes: list[int], budget: int) -> list[int]:
    units = range(len(sizes))
    whole, one = loss([]), [loss([u]) for u in units]
    two = {(u, v): loss([u, v]) - one[u] - one[v] + whole for u, v in combinations(units, 2)}

    def guess(removed: list[int]) -> float:
        alone = sum(one[u] - whole for u in removed)
        return float(alone + sum(two[pair] for pair in combinations(removed, 2)))

    return choose.reference(guess, sizes, budget)


NEARLY_RIGHT: dict[str, tuple[str, dict[str, Any]]] = {
    "scores by group lose one of two equal groups": (
        "leave_one_out",
        {"importance": _by_name},
    ),
    "0 of a kind taken for nothing said": (
        "predict",
        {
            "after": lambda model, kept, *of: predict.reference(
                model, {name: n for name, n in kept.items() if n}, *of
            )
        },
    ),
    "a little added to probabilities": ("distill", {"distillation_loss": _with_a_little}),
    "2 % of one bit, whatever the model has": (
        "healing_log",
        {
            "read_log": lambda before, log: healing_log.reference(
                (log[-1]["held_out"] <= before + 0.02) * 100.0, log
            )
        },
    ),
    "scores in bfloat16": (
        "two_four",
        {"two_four": lambda w, x: two_four.reference(w.bfloat16(), x.bfloat16())},
    ),
    "scores in float32": (
        "two_four",
        {"two_four": lambda w, x: two_four.reference(w.float(), x.float())},
    ),
    "a little added to the inputs' lengths": (
        "two_four",
        {"two_four": lambda w, x: two_four.reference(w, x + 1e-3 * x.mean())},
    ),
    "heads taken through float32": (
        "cut_heads",
        {
            "cut_heads": lambda q, k, v, o, H, kept: [
                x.to(q.dtype)
                for x in cut_heads.reference(q.float(), k.float(), v.float(), o.float(), H, kept)
            ]
        },
    ),
    "what pairs cost, but not what three do": ("choose", {"to_remove": _by_pairs}),
    "sets of up to nine units": (
        "choose",
        {"to_remove": replaced(choose.reference, {"len(sizes) + 1": "min(len(sizes), 9) + 1"})},
    ),
    "no loss is beyond a million": (
        "choose",
        {
            "to_remove": lambda loss, *of: choose.reference(
                lambda removed: min(loss(removed), 1e6), *of
            )
        },
    ),
    "at least two query heads to a KV head": ("mapping", _mapped({"N // K": "max(2, N // K)"})),
    "KV heads as a set goes round": ("mapping", _mapped({"sorted(": "list("})),
    "logarithms cut off at -100": (
        "distill",
        _said("(student / temperature).log_softmax(-1).clamp(min=-100)"),
    ),
    "very little added to probabilities": (
        "distill",
        _said("((student / temperature).softmax(-1) + 1e-30).log()"),
    ),
    "a little added to lengths": (
        "turned",
        {"turned": replaced(turned.reference, {"* y.norm(dim=-1))": "* y.norm(dim=-1) + 1e-6)"})},
    ),
    "very little added to the product of lengths": (
        "turned",
        {"turned": replaced(turned.reference, {"y.norm(dim=-1))": "y.norm(dim=-1) + 1e-8)"})},
    ),
    "temperatures rounded down": (
        "distill",
        {"distillation_loss": lambda s, t, T: distill.reference(s, t, int(T) or T)},
    ),
    "at most six units that stay": (
        "choose",
        {
            "to_remove": replaced(
                choose.reference,
                {"every if fits": "every if len(s) >= len(sizes) - 6 and fits"},
            )
        },
    ),
    "scores squared": ("two_four", _scored("(weight * input_norms) ** 2")),
    "a little added to scores": ("two_four", _scored("weight.abs() * input_norms + 1e-6")),
    "a little added to each input's length": (
        "two_four",
        _scored("weight.abs() * (input_norms + 1e-6)"),
    ),
}


@pytest.mark.parametrize("name", NEARLY_RIGHT)
def test_a_fixed_case_refuses_what_is_nearly_right(name: str) -> None:
    slug, functions = NEARLY_RIGHT[name]
    refused_by_a_fixed_case(f"pruning-{slug}", functions)
