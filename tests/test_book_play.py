"""A {play} box: the page's formula is the package's, its first state is drawn, and its JavaScript
twin agrees with the Python."""

import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sympy
import yaml
from patience import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_play  # noqa: E402
import book_play_formula as formula  # noqa: E402
import book_play_plot as plot  # noqa: E402

from twophase.theory.kv_cache import max_batch  # noqa: E402
from twophase.theory.latency_throughput import step_time_s  # noqa: E402

NODE = shutil.which("node")
PIXELS = re.compile(r"-?\d+\.\d")  # all coordinates that are computed are written with one decimal
THEORY = "twophase.theory"
BOX = f"""
title: A box with everything
inputs:
  B: {{label: Sequences, min: 1, max: 512, value: 32, scale: log, step: 1}}
  S: {{label: Context, unit: tokens, values: [1024, 8192, 131072], value: 8192}}
  chip: {{label: Chip, options: {{H100: {{W: "{THEORY}.catalog.HARDWARE[H100 SXM].hbm_bytes_per_s",
          C: "{THEORY}.catalog.HARDWARE[H100 SXM].flops_per_s[bf16]"}}, slow: {{W: 1.0e+11, C: 1.0e+12}}}}}}
given:
  llama: "{THEORY}.catalog.MODELS[llama-2-13b]"
  n_params: {{call: {THEORY}.architecture.Architecture.n_params, args: {{self: llama}}}}
outputs:
  cache: {{label: Cache, unit: B, expr: {THEORY}.architecture.Architecture.cache_bytes, args: {{self: llama, S: S}}}}
  step: {{label: Step, unit: s, expr: {THEORY}.latency_throughput.step_time_s, args: {{weight_bytes: 26.0e+9, B: B,
          cache_bytes_per_sequence: cache, step_flops: flops, bytes_per_s: W, flops_per_s: C}}}}
  fits: {{label: Largest batch, unit: sequences, expr: {THEORY}.kv_cache.max_batch, args: {{memory_bytes: 640.0e+9,
          weight_bytes: 26.0e+9, cache_bytes_per_sequence: cache}}}}
  floor: {{label: Floor, unit: s, expr: {THEORY}.latency_throughput.step_time_floor_s, args: {{weight_bytes: 26.0e+9, bytes_per_s: W}}}}
  share: {{label: Share, unit: "%", formula: 100 * B * cache / (B * cache + 2 * n_params)}}
plot: {{x: B, y: [step, floor], y_scale: log, y_label: Time of a step, marks: [{{x: fits, label: full}}, {{y: floor, label: floor}}]}}
"""


def read(text: str = BOX) -> formula.Play:
    import inspect

    parameters = list(inspect.signature(max_batch).parameters)
    spec = yaml.safe_load(text)
    if "fits" in spec["outputs"]:
        values = [640e9, 26e9, "cache"]
        spec["outputs"]["fits"]["args"] = dict(zip(parameters, values, strict=False))
        spec["outputs"]["step"]["args"]["step_flops"] = 1e13
    return formula.read_spec(spec)


def test_an_output_is_the_packages_function_to_the_last_bit_that_matters() -> None:
    play = read()
    state = play.start()
    cache = 2 * 40 * 40 * 128 * 2 * state["S"]  # Llama-2-13B: both, layers, KV heads, width, bf16
    outputs = {output.name: formula.number(output.expr, state) for output in play.outputs}
    assert outputs["cache"] == pytest.approx(cache, rel=1e-12)
    assert outputs["step"] == pytest.approx(
        step_time_s(26e9, 32, cache, 1e13, 3.35e12, 989e12), rel=1e-12
    )
    assert outputs["fits"] == (640e9 - 26e9) // cache
    assert outputs["share"] == pytest.approx(
        100 * 32 * cache / (32 * cache + 2 * 13_015_864_320), rel=1e-9
    )


def in_node(script: str) -> Any:
    assert NODE is not None
    program = (
        f"{(ROOT / 'book' / '_static' / 'play.js').read_text('utf8')}\nconst play ="
        f" globalThis.twophasePlay;\n{script}"
    )
    done = subprocess.run(
        [NODE, "-"], input=program, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def random_states(play: formula.Play, count: int) -> list[dict[str, float]]:
    rng = random.Random(4)
    states = [play.start()]
    for _ in range(count):
        state: dict[str, float] = {}
        for item in play.inputs:
            if item.options:
                state.update(rng.choice(list(item.options.values())))
            else:
                state[item.name] = (
                    rng.choice(item.values)
                    if item.values
                    else float(rng.randint(int(item.low), int(item.high)))
                )
        states.append(state)
    return states


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_pages_javascript_gives_pythons_numbers_in_every_state() -> None:
    play = read()
    states = random_states(play, 40)
    script = (
        f"const f = {book_play.formulas(play)}, states = {json.dumps(states)};"
        "console.log(JSON.stringify(states.map(v => Object.values(f).map(g => g(v)))));"
    )
    exprs = [output.expr for output in play.outputs] + [mark.expr for mark in play.plot.marks]  # type: ignore[union-attr]
    for state, row in zip(states, in_node(script), strict=True):
        assert row == pytest.approx([formula.number(expr, state) for expr in exprs], rel=1e-12)


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.parametrize(
    "text",
    [
        "Max(B, 100)",
        "Min(B, 7) + ceiling(B / 7)",
        "floor(B / 7) * sqrt(B)",
        "log(B) + B**Rational(1, 3)",
        "Piecewise((B, B < 50), (2 * B, True))",
    ],
)
def test_what_theory_gives_for_symbols_becomes_javascript(text: str) -> None:
    B = sympy.Symbol("B", positive=True)
    expr = sympy.sympify(text, locals={"B": B})
    values = [1, 6, 7, 49, 50, 51, 99, 101, 511]
    found = in_node(
        f"console.log(JSON.stringify({values}.map(b => ((v) => {formula.javascript(expr)})({{B:"
        " b}))));"
    )
    assert found == pytest.approx([float(expr.subs(B, value)) for value in values], rel=1e-12)


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_first_state_drawn_at_build_time_is_what_the_script_draws() -> None:
    play = read()
    for state in random_states(play, 6):
        script = (
            f"const spec = {json.dumps(book_play.page_spec(play))}, f = {book_play.formulas(play)},"
            f" v = {json.dumps(state)};console.log(JSON.stringify([play.draw(spec, f, v, 640),"
            " play.describe(spec, f, v)]));"
        )
        drawing, words = in_node(script)
        assert words == plot.describe(play, state)
        expected = plot.draw(play, state)
        assert PIXELS.sub("#", drawing) == PIXELS.sub("#", expected)
        found, wanted = (
            [float(number) for number in PIXELS.findall(text)] for text in (drawing, expected)
        )
        assert found == pytest.approx(
            wanted, abs=0.11
        )  # a tenth of a pixel, which the two may round apart


NUMBERS = [
    0,
    1,
    1.5,
    999.6,
    1000,
    12345,
    131072,
    9_999_999,
    1e7,
    3.35e12,
    8.589934592e9,
    0.00142,
    2.5e-3,
    7.76e-6,
    99.96,
    0.05,
    1e-4,
    250,
    3600,
]


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.parametrize("unit", ["", "B", "s", "FLOP/s", "%", "tokens"])
def test_both_write_numbers_the_same_way(unit: str) -> None:
    found = in_node(
        f"console.log(JSON.stringify({NUMBERS}.map(x => play.readable(x, {json.dumps(unit)}))));"
    )
    assert found == [plot.readable(value, unit) for value in NUMBERS]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (8.589934592e9, "B", "8.59 GB"),
        (0.0025, "s", "2.5 ms"),
        (131072, "tokens", "131,072 tokens"),
        (3.35e12, "B/s", "3.35 TB/s"),
        (999.96e6, "B", "1 GB"),
        (0, "B", "0 B"),
        (90, "s", "90 s"),
        (12.5, "%", "12.5%"),
    ],
)
def test_numbers_are_written_as_a_person_would(value: float, unit: str, text: str) -> None:
    assert plot.readable(value, unit) == text


@pytest.mark.parametrize(
    ("low", "high", "log"),
    [(0, 1, False), (0.3, 17, False), (1, 512, True), (1e-3, 40, True), (2, 5, True)],
)
def test_ticks_lie_inside_the_axis_and_are_enough_to_read_it(
    low: float, high: float, log: bool
) -> None:
    found = plot.ticks(low, high, log)
    assert 2 <= len(found) <= 12
    assert all(low * (1 - 1e-6) <= tick <= high * (1 + 1e-6) for tick in found)


def test_the_box_makes_its_point_without_script() -> None:
    play = read()
    html = book_play.opening(play, "play-x")
    assert 'data-output="cache">6.71 GB<' in html
    assert html.count('<path class="tp-curve') == 2
    assert 'role="img" aria-label="Line plot over Sequences' in html
    for item in play.inputs:
        assert f'<label for="play-x-{item.name}">' in html


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("value: 32", "value: 1000"), "input 'B' needs min < max and a value between them"),
        (("cache_bytes, args", "cash_bytes, args"), "has no 'cash_bytes'|there is no 'cash_bytes'"),
        (("[H100 SXM].hbm", "[H1000].hbm"), "there is no 'H1000'"),
        (("bytes_per_s: W, ", ""), "step_time_s cannot be called with symbols: TypeError"),
        (("y: [step, floor]", "y: [step, speed]"), "y names 'speed', which is no output"),
        (("y: [step, floor]", "y: [step, cache]"), "share one axis and so one unit"),
        (("x: B, y", "x: chip, y"), "x must be a slider"),
        (("title: A box with everything", ""), "'title' is missing"),
        (("formula: 100", "expresion: 1, formula: 100"), "unknown key 'expresion'"),
        (("* cache / (B", "* cash / (B"), "needs 'cash', which is no input"),
        (("min: 1,", "min: 0,"), "a log scale starts above zero"),
    ],
)
def test_a_mistake_in_a_box_is_one_clear_sentence(change: tuple[str, str], complaint: str) -> None:
    assert change[0] in BOX
    with pytest.raises(formula.PlayError, match=complaint.replace("(", r"\(")):
        read(BOX.replace(*change))
