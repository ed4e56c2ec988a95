"""One function is formula, number, array and symbol: the same answer whatever comes in."""

import inspect
import math
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import sympy
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE_S

from twophase.theory import (
    _domain,
    _ops,
    arithmetic_intensity,
    beyond_attention,
    collectives,
    grouped_query_attention,
    kv_cache,
    latency_throughput,
    latent_attention,
    local_attention,
    mixture_of_experts,
    params,
    pruning,
    sharding,
    speculative_decoding,
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
    speculative_decoding,
    pruning,
    beyond_attention,
    grouped_query_attention,
    local_attention,
    latent_attention,
    collectives,
    sharding,
)


def public(module: ModuleType) -> list[Callable]:
    """The public functions that a module defines."""
    return [
        function
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and not name.startswith("_")
        and function.__module__ == module.__name__
    ]


NO_FORMULA = {
    "pareto_front",  # a list of points goes in, a list of indices comes out
    "expected_experts_by_share",  # a share for each expert
    "expected_dropped_visits",  # a sum over whole numbers
    "expected_chips",  # binomial coefficients
    "expected_tokens_by_place",  # an acceptance for each place
    "best_draft_length",  # lists of measurements
    "pruned",  # an architecture goes in and comes out
}
FORMULAS = [f for room in ROOMS for f in public(room) if f.__name__ not in NO_FORMULA]
IDS = [f"{f.__module__.rsplit('.', 1)[1]}.{f.__name__}" for f in FORMULAS]
# Where activations, or caches, alone keep a product memory bound; where one form is always cheaper.
MAY_BE_INFINITE = {
    "critical_batch_exact",
    "critical_batch_of_step",
    "critical_group",
    "crossover_queries",
}

# By hand: what is ordered only for a causal mask is drawn ordered always.
ORDERED = {"attention_pairs": (("T", "S"),), "attention_flops": (("T", "S"),)}
for name in ("attention_intensity", "expanded_flops", "absorbed_flops"):
    ORDERED[name] = ORDERED["attention_pairs"]


@cache
def drawn(domain: _domain.Domain) -> st.SearchStrategy[int | Fraction]:
    """Numbers of a domain that floats hold exactly, and so do their sums: no rounding decides."""
    low = int(domain.least)
    if domain.most < _domain.LARGEST:
        return st.integers(0 if domain.zero_ok else 1, 64).map(lambda n: Fraction(n, 64))
    whole = st.integers(max(low, 0 if domain.zero_ok else 1), 2**12)
    parts = st.integers(max(1, 8 * low), 2**12).map(lambda n: Fraction(n, 8))
    return whole if domain.whole else whole | parts


@cache
def arguments(function: Callable) -> st.SearchStrategy[dict[str, int | Fraction]]:
    def in_order(values: dict[str, int | Fraction]) -> dict[str, int | Fraction]:
        for small, large in (*function.ordered, *ORDERED.get(function.__name__, ())):
            values[small], values[large] = sorted((values[small], values[large]))
        return values

    numbers = {name: drawn(domain) for name, domain in function.domains.items()}
    return st.fixed_dictionaries(numbers).map(in_order)


@cache
def switches(function: Callable) -> st.SearchStrategy[dict[str, bool]]:
    found = inspect.signature(function).parameters.values()
    return st.fixed_dictionaries({p.name: st.booleans() for p in found if p.annotation is bool})


@cache
def three_times(function: Callable) -> st.SearchStrategy[list[dict[str, int | Fraction]]]:
    return st.lists(arguments(function), min_size=3, max_size=3)


def as_floats(values: dict[str, int | Fraction]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


def real(function: Callable, value: Any) -> float:
    """The value as a float, which must be a number, and finite but for the named exceptions."""
    assert not isinstance(value, complex)
    number = float(value)
    assert math.isfinite(number) or (number == math.inf and function.__name__ in MAY_BE_INFINITE)
    return number


def test_every_public_function_is_a_formula_with_domains() -> None:
    assert len(FORMULAS) > 60
    assert len(set(IDS)) == len(IDS)
    assert all(function.domains for function in FORMULAS)


every_formula = pytest.mark.parametrize("function", FORMULAS, ids=IDS)


@every_formula
@draws(8)
@given(data=st.data())
def test_ints_floats_and_arrays_agree_over_the_whole_domain(
    function: Callable, data: st.DataObject
) -> None:
    thrice, switched = data.draw(three_times(function)), data.draw(switches(function))
    arrays = {name: np.array([float(d[name]) for d in thrice]) for name in thrice[0]}
    together = np.broadcast_to(function(**arrays, **switched), 3)
    for i, one in enumerate(thrice):
        exact = real(function, function(**one, **switched))
        close = pytest.approx(exact, rel=1e-9)
        assert real(function, function(**as_floats(one), **switched)) == close
        assert real(function, together[i]) == close


@every_formula
@draws(3)
@given(data=st.data())
def test_symbols_give_after_substitution_what_numbers_give(
    function: Callable, data: st.DataObject
) -> None:
    values, switched = data.draw(arguments(function)), data.draw(switches(function))
    symbols = {name: sympy.Symbol(name, nonnegative=True) for name in values}
    expression = function(**symbols, **switched)
    assert isinstance(expression, sympy.Expr)
    numbers = {symbols[n]: sympy.Rational(v.numerator, v.denominator) for n, v in values.items()}
    # all at once: a power with one number in it may be a polynomial of degree 4,096
    found, direct = expression.xreplace(numbers), function(**values, **switched)
    assert real(function, found) == pytest.approx(real(function, direct), rel=1e-9)


@every_formula
@pytest.mark.parametrize("number", [int, float])
def test_at_the_edges_of_the_domain_nothing_overflows(function: Callable, number: type) -> None:
    """Each argument at its largest or smallest, all others alike, then beside moderate ones."""
    for others in (10**32, 1):
        for name, domain in function.domains.items():
            top = 1 if domain.most == 1 else 10**32
            bottom = domain.least if domain.whole or domain.least else _domain.SMALLEST
            for edge in (top, 0 if domain.zero_ok else bottom):
                values: dict[str, Any] = {
                    n: 1 if d.most == 1 else max(others, int(d.least))
                    for n, d in function.domains.items()
                } | {name: edge}
                for small, large in (*function.ordered, *ORDERED.get(function.__name__, ())):
                    values[small], values[large] = sorted((values[small], values[large]))
                kept = values if number is int else as_floats(values)
                real(function, function(**kept))


@every_formula
def test_every_formula_can_become_javascript(function: Callable) -> None:
    code = sympy.jscode(
        function(**{name: sympy.Symbol(name, positive=True) for name in function.domains})
    )
    assert "Not supported" not in code
    assert code.count("(") == code.count(")")


NEVER = {
    "negative": -1,
    "nan": math.nan,
    "inf": math.inf,
    "true": True,
    "complex": 1j,
    "text": "8",
    "list": [8],
    "four hundred digits": 10**400,
    "beyond": 1e33,
    "array with a negative": np.array([4, -4]),
    "array with nan": np.array([4, math.nan]),
    "array with inf": np.array([4, math.inf]),
    "array of truth values": np.array([True]),
    "array of complex": np.array([1j]),
    "sympy negative": sympy.Integer(-3),
    "sympy infinity": sympy.oo,
    "sympy nan": sympy.nan,
    "sympy imaginary": sympy.I,
    "sympy truth": sympy.true,
    "negative symbol": sympy.Symbol("x", negative=True),
    "imaginary symbol": sympy.Symbol("x", imaginary=True),
}


def outside(domain: _domain.Domain) -> list[object]:
    """Values outside this domain that are inside another one."""
    bad: list[object] = []
    if not domain.zero_ok:
        bad += [0, 1e-33, np.array([4.0, 0.0]), sympy.Integer(0)]
    if domain.whole:
        bad += [2.5, np.array([2, 2.5])]
    if domain.most == 1:
        bad += [1.01, 4, np.array([0.5, 1.5]), sympy.Rational(3, 2)]
    return [*bad, domain.least - 1] if domain.least > 0 else bad


@every_formula
def test_what_lies_outside_the_domain_is_refused_by_the_arguments_name(function: Callable) -> None:
    good = {n: 1 if d.most == 1 else 8 for n, d in function.domains.items()}
    function(**good)
    for name, domain in function.domains.items():
        for bad in (*NEVER.values(), *outside(domain)):
            with pytest.raises(ValueError, match=rf"\b{name}\b") as caught:
                function(**good | {name: bad})
            assert len(str(caught.value)) < 200


@every_formula
def test_what_must_not_exceed_another_is_refused_if_it_does(function: Callable) -> None:
    good = {n: 1 if d.most == 1 else 8 for n, d in function.domains.items()}
    for small, large in function.ordered:
        for bad in (9, np.array([3, 9]), Fraction(17, 2)):
            with pytest.raises(ValueError, match=f"{small} must be at most {large}"):
                function(**good | {small: bad})


SOURCE = """
from __future__ import annotations
from twophase.theory._domain import Number, formula

@formula(zero_ok=("b",))
def ratio(a: Number, b: Number | None = None, plain: bool = False) -> Number:
    return a if b is None else a * b
"""


def test_annotations_that_are_text_lose_no_check() -> None:
    names: dict[str, Any] = {"__name__": "late"}
    exec(SOURCE, names)
    assert (names["ratio"](3), names["ratio"](3, 0), names["ratio"](3, b=None)) == (3, 0, 3)
    for bad in ((-1,), (0,), (1, -1), ("8",), (None,)):
        with pytest.raises(ValueError, match="must be"):
            names["ratio"](*bad)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("a: Number,", "a,", "does not say what a is"),
        ("a: Number,", "a: Missing,", "Missing"),
        ('("b",)', '("c",)', "no number called c"),
    ],
)
def test_a_formula_whose_checks_would_be_lost_is_no_formula(
    before: str, after: str, says: str
) -> None:
    with pytest.raises(TypeError, match=says):
        exec(SOURCE.replace(before, after), {"__name__": "late"})


def test_a_formula_that_was_refused_once_checks_the_next_call() -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="k must be at most E"):
            mixture_of_experts.expected_experts(2.5, 4, 8)


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
from twophase.theory import catalog, plan, workload
from twophase.theory.arithmetic_intensity import roofline_flops_per_s
assert roofline_flops_per_s(10, 100, 5) == 50
w = workload.Workload(batch=60)
p = plan.plan_deployment(catalog.model("llama-2-13b"), catalog.hardware("h100"), w)
assert p.memory.max_batch == 60
assert not {"numpy", "torch", "sympy", "rich", "typer"} & set(sys.modules)
print("clean")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.stdout.strip() == "clean", done.stderr


def test_a_quotient_by_nothing_is_infinite_for_numbers_of_sympy_too() -> None:
    for half in (sympy.Float("0.5"), sympy.Rational(1, 2), 0.5):
        assert arithmetic_intensity.critical_batch_of_step(half, 1, 1, 1, 1) == math.inf
        assert float(arithmetic_intensity.critical_batch_of_step(half, 0, half, 1, 1)) == 1


def test_a_refusal_is_one_line_whatever_was_given() -> None:
    for bad in (sympy.Matrix([1, 2]), np.array([[1.0, 2.0], [3.0, -1.0]])):
        with pytest.raises(ValueError, match="V must be") as caught:
            params.embedding_params(bad, 8)
        assert "\n" not in str(caught.value)
