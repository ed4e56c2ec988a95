"""One function is formula, number, array and symbol: the same answer whatever comes in."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
import sympy
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.theory import (
    _ops,
    arithmetic_intensity,
    kv_cache,
    latency_throughput,
    mixture_of_experts,
    params,
    two_phases,
)
from twophase.theory import catalog as catalog_module

ROOMS = (
    params,
    arithmetic_intensity,
    kv_cache,
    latency_throughput,
    two_phases,
    mixture_of_experts,
)


def formulas(module: ModuleType) -> list[Callable]:
    """The public functions of a module whose arguments are all numbers and switches."""
    return [
        function
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and not name.startswith("_")
        and function.__module__ == module.__name__
        and hasattr(function, "__wrapped__")
    ]


FORMULAS = [function for room in ROOMS for function in formulas(room)]
IDS = [f"{f.__module__.rsplit('.', 1)[1]}.{f.__name__}" for f in FORMULAS]


def number_names(function: Callable) -> list[str]:
    found = inspect.signature(function).parameters.values()
    return [p.name for p in found if p.annotation in (_ops.Number, _ops.Number | None)]


def draw_arguments(function: Callable, draw: Callable[[], int]) -> dict[str, int]:
    """Fresh sizes; where a formula orders two of them, ordered."""
    values = {name: draw() for name in number_names(function)}
    for small, large in (("T", "S"), ("k", "E")):
        if {small, large} <= set(values):
            values[small], values[large] = sorted((values[small], values[large]))
    return values


def numbers(value: object) -> float:
    return float(value)  # type: ignore[arg-type]


def test_there_are_formulas_to_test() -> None:
    assert len(FORMULAS) > 55
    assert len(set(IDS)) == len(IDS)


@pytest.mark.parametrize("function", FORMULAS, ids=IDS)
@draws(12)
@given(data=st.data())
def test_arrays_give_elementwise_what_scalars_give(function: Callable, data: st.DataObject) -> None:
    draws = [draw_arguments(function, lambda: data.draw(st.integers(2, 2**20))) for _ in range(3)]
    arrays = {name: np.array([d[name] for d in draws], dtype=np.int64) for name in draws[0]}
    together = function(**arrays)
    for i, one in enumerate(draws):
        assert numbers(np.broadcast_to(together, 3)[i]) == pytest.approx(
            numbers(function(**one)), rel=1e-9
        )


@pytest.mark.parametrize("function", FORMULAS, ids=IDS)
@draws(6)
@given(data=st.data())
def test_symbols_give_after_substitution_what_numbers_give(
    function: Callable, data: st.DataObject
) -> None:
    values = draw_arguments(function, lambda: data.draw(st.integers(2, 2**12)))
    symbols = {name: sympy.Symbol(name, positive=True) for name in values}
    expression = function(**symbols)
    assert isinstance(expression, sympy.Expr)
    substituted = expression.subs({symbols[name]: value for name, value in values.items()})
    assert float(substituted) == pytest.approx(numbers(function(**values)), rel=1e-9)


@pytest.mark.parametrize("function", FORMULAS, ids=IDS)
def test_every_formula_can_become_javascript(function: Callable) -> None:
    code = sympy.jscode(
        function(**{name: sympy.Symbol(name, positive=True) for name in number_names(function)})
    )
    assert "Not supported" not in code
    assert code.count("(") == code.count(")")


@pytest.mark.parametrize("function", FORMULAS, ids=IDS)
def test_every_formula_refuses_negative_sizes_text_and_truth_values(function: Callable) -> None:
    names = number_names(function)
    good = dict.fromkeys(names, 8)
    for name in names:
        for bad in (-1, float("nan"), "8", True, np.array([4, -4]), [8]):
            with pytest.raises(ValueError, match=name):
                function(**good | {name: bad})


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint64])
def test_integer_arrays_do_not_overflow(dtype: type) -> None:
    side = np.array([100], dtype=dtype)
    assert arithmetic_intensity.matmul_flops(side, 10**9, 10**9) == 2e20
    assert kv_cache.kv_bytes_per_sequence(side, side, side, side, 10**6) == 2e14
    assert two_phases.naive_generation_flops(side, side, 10**18, 1, 1, 1) == pytest.approx(2.99e22)
    assert arithmetic_intensity.attention_pairs(side, side, causal=True) == 5050
    number = dtype(100)
    assert arithmetic_intensity.mlp_flops(number, number, number, number) == 6e8


def test_python_integers_stay_exact() -> None:
    huge = 3 * 10**30 + 1
    assert arithmetic_intensity.matmul_flops(huge, 1, 1) == 2 * huge
    assert kv_cache.max_batch(huge * 7, 0 + huge, huge) == 6
    tokens = 3 * 10**9 + 3
    pairs = sum(n * (n + 1) // 2 for n in (10**9, 10**9 + 1, 10**9 + 2))
    assert two_phases.naive_generation_flops(10**9, 3, 1, 1, 1, 1) == 2 * tokens + 4 * pairs


@draws(100)
@given(st.integers(-(10**6), 10**6), st.integers(1, 10**4))
def test_whole_divisions_agree_over_ints_arrays_and_symbols(a: int, b: int) -> None:
    for ours, exact in ((_ops.floor_div, a // b), (_ops.ceil_div, -(-a // b))):
        assert ours(a, b) == exact
        assert ours(np.array([a], dtype=float), b)[0] == exact
        assert ours(sympy.Integer(a), sympy.Integer(b)) == exact


def test_where_maximum_minimum_and_roots_serve_every_type() -> None:
    x = sympy.Symbol("x", positive=True)
    grid = np.array([1.0, 4.0, 9.0])
    assert _ops.where(grid > 2, grid, 0).tolist() == [0, 4, 9]
    assert _ops.where(3 > 2, "yes", "no") == "yes"
    assert _ops.where(x > 2, x, sympy.Integer(0)).subs(x, 3) == 3
    assert _ops.where(x > 2, x, sympy.Integer(0)).subs(x, 1) == 0
    assert _ops.sqrt(grid).tolist() == [1, 2, 3]
    assert _ops.sqrt(4) == 2
    assert _ops.sqrt(x) ** 2 == x
    assert _ops.maximum(grid, 5).tolist() == [5, 5, 9]
    assert _ops.minimum(x, 3).subs(x, 7) == 3


def test_catalog_caches_serve_arrays_and_symbols() -> None:
    S = sympy.Symbol("S", positive=True)
    contexts = np.array([0, 1, 1000, 5000, 10**6])
    for arch in catalog_module.MODELS.values():
        curve, formula = arch.cache_bytes(contexts), arch.cache_bytes(S)
        for i, context in enumerate(contexts.tolist()):
            assert curve[i] == arch.cache_bytes(context) == formula.subs(S, context)


def test_theory_needs_nothing_but_the_standard_library() -> None:
    program = """
import sys
allowed = set(sys.stdlib_module_names) | {"twophase", "__main__"}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ImportError("refused: " + name)
sys.meta_path.insert(0, Refuse())
import importlib, pkgutil
import twophase.theory
for module in pkgutil.iter_modules(twophase.theory.__path__):
    importlib.import_module("twophase.theory." + module.name)
from twophase.theory import catalog, plan
from twophase.theory.arithmetic_intensity import roofline_flops_per_s
assert roofline_flops_per_s(10, 100, 5) == 50
w = plan.Workload(batch=64)
p = plan.plan_deployment(catalog.model("llama-2-13b"), catalog.hardware("h100"), w)
assert p.max_batch == 70
assert not {"numpy", "torch", "sympy", "rich", "typer"} & set(sys.modules)
print("clean")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "clean", done.stderr
