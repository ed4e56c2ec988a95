"""A {play} box: the page's formula is the package's, its first state is drawn by the page's own
script, and keys, hand and numbers do what they say."""

import inspect
import math
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import sympy
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_play  # noqa: E402
import book_play_formula as formula  # noqa: E402
from book_play_script import Script  # noqa: E402
from book_play_spec import Play, read_spec  # noqa: E402

from twophase.theory.kv_cache import max_batch  # noqa: E402
from twophase.theory.latency_throughput import step_time_s  # noqa: E402

THEORY = "twophase.theory"
BOX = f"""
title: A box with everything
inputs:
  B: {{label: Sequences, min: 1, max: 512, value: 32, scale: log, step: 1}}
  S: {{label: Context, unit: tokens, values: [1024, 8192, 131072], value: 8192}}
  chip: {{label: Chip, options: {{of: {THEORY}.catalog.HARDWARE, keys: [H100 SXM, TPU v5e],
          set: {{W: hbm_bytes_per_s, C: "flops_per_s[bf16]"}}}}}}
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


def read(text: str = BOX) -> Play:
    parameters = list(inspect.signature(max_batch).parameters)
    spec = yaml.safe_load(text)
    if "fits" in spec["outputs"]:
        values = [640e9, 26e9, "cache"]
        spec["outputs"]["fits"]["args"] = dict(zip(parameters, values, strict=False))
        spec["outputs"]["step"]["args"]["step_flops"] = 1e13
    return read_spec(spec)


def test_an_output_is_the_packages_function_to_the_last_bit_that_matters() -> None:
    script = Script(read())
    state = script.start()
    cache = 2 * 40 * 40 * 128 * 2 * state["S"]  # Llama-2-13B: both, layers, KV heads, width, bf16
    outputs = script.numbers(state)
    assert outputs["cache"] == pytest.approx(cache, rel=1e-12)
    assert outputs["step"] == pytest.approx(
        step_time_s(26e9, 32, cache, 1e13, 3.35e12, 989e12), rel=1e-12
    )
    assert outputs["fits"] == (640e9 - 26e9) // cache
    assert outputs["share"] == pytest.approx(
        100 * 32 * cache / (32 * cache + 2 * 13_015_864_320), rel=1e-9
    )


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
    asked = f"dukpy.values.map(B => ((v) => {formula.javascript(expr)})({{B}}))"
    found = Script(read()).ask(asked, values=values)
    assert found == pytest.approx([float(expr.subs(B, value)) for value in values], rel=1e-12)


def slider(**given: Any) -> dict[str, Any]:
    """A slider as the page's script knows it."""
    made = {"low": 1, "high": 512, "step": 1, "log": True, "values": []}
    return made | given


SLIDERS = [
    slider(),
    slider(high=131072),
    slider(low=512, high=262144),
    slider(low=0, high=50, log=False),
    slider(low=0, high=1, step=0.125, log=False),
]


@pytest.fixture(scope="module")
def ask() -> Any:
    return Script(read()).ask


@pytest.mark.parametrize("item", SLIDERS)
def test_a_key_moves_by_one_step_wherever_the_handle_is(ask: Any, item: dict[str, Any]) -> None:
    low, high, step = (item[name] for name in ("low", "high", "step"))
    middle = low + step * ((high - low) // step // 2)
    for value in (low, low + step, middle, high - step, high):
        for key, sign in (("ArrowRight", 1), ("ArrowUp", 1), ("ArrowLeft", -1), ("ArrowDown", -1)):
            expected = min(high, max(low, value + sign * step))
            assert ask("play.keyed(dukpy.i, dukpy.v, dukpy.k)", i=item, v=value, k=key) == expected
        ahead = ask("play.keyed(dukpy.i, dukpy.v, 'PageUp')", i=item, v=value)
        assert ahead >= min(high, value + step)
    assert ask("play.keyed(dukpy.i, 3, 'Home')", i=item) == low
    assert ask("play.keyed(dukpy.i, 3, 'End')", i=item) == high
    assert ask("play.keyed(dukpy.i, 3, 'Tab') === undefined", i=item)


@pytest.mark.parametrize("item", SLIDERS)
def test_the_handle_stands_where_its_value_is(ask: Any, item: dict[str, Any]) -> None:
    """A value gives a place, and the place the value: nothing moves by being shown."""
    steps = int((item["high"] - item["low"]) / item["step"])
    rng = random.Random(4)
    values = [item["low"] + item["step"] * rng.randint(0, steps) for _ in range(60)]
    values += [item["low"], item["high"]]
    back = "dukpy.vs.map(v => play.valueOf(dukpy.i, play.positionOf(dukpy.i, v)))"
    assert ask(back, i=item, vs=values) == pytest.approx(values, rel=1e-12)
    assert ask("[0, 1].map(p => play.valueOf(dukpy.i, p))", i=item) == [item["low"], item["high"]]


def test_a_slider_of_values_stops_at_these_alone(ask: Any) -> None:
    item = slider(low=1, high=40, values=[1, 4, 8, 40])
    asked = "dukpy.ks.map(k => play.keyed(dukpy.i, 4, k))"
    keys = ["ArrowRight", "ArrowLeft", "End", "Home"]
    assert ask(asked, i=item, ks=keys) == [8, 1, 40, 1]
    assert ask("play.keyed(dukpy.i, 40, 'ArrowRight')", i=item) == 40
    assert ask("[0, 1, 2, 3].map(p => play.valueOf(dukpy.i, p))", i=item) == item["values"]


ROOM = BOX.replace("plot:", "room: {needs: full, has: memory}\nplot:").replace(
    "  floor:",
    """  memory: {label: Memory, unit: B, formula: 640.0e+9}
  full: {label: Needed, unit: B, formula: 26.0e+9 + B * cache}
  rate: {label: Rate, unit: tokens/s, formula: B / step, needs_room: true}
  floor:""",
)


def test_what_does_not_fit_has_no_rate() -> None:
    script = Script(read(ROOM))
    state = script.start() | {"S": 131072}
    most = int(script.numbers(state)["fits"] or 0)
    for B, fits in ((most, True), (most + 1, False)):
        shown = script.shown(state | {"B": B})
        assert shown["fits"] is fits
        assert (shown["outputs"]["rate"] == "does not fit") is not fits
        assert shown["room"].startswith("Fits: " if fits else "Does not fit: ")


def test_a_curve_that_needs_room_ends_at_the_wall() -> None:
    needy = ROOM.replace("label: Step,", "label: Step, needs_room: true,")
    script = Script(read(needy))
    state = script.start() | {"S": 131072}
    wall = int(script.numbers(state)["fits"] or 0)
    drawn = script.shown(state)["drawing"]
    paths = [path.partition('"')[0] for path in drawn.split(' d="')[1:3]]
    ends = [path.rpartition("L")[2].split()[0] for path in paths]
    mark = drawn.split('class="tp-mark" x1="')[1].split('"')[0]
    assert 1 < wall < 512
    assert ends[0] == mark  # the step's line
    assert float(ends[1]) > float(mark)  # the floor's


DOT = f"""
title: A dot to drag
inputs: {{B: {{label: Rows, min: 1, max: 8192, value: 16, scale: log}}}}
outputs:
  i: {{label: Intensity, unit: FLOP/B, expr: {THEORY}.arithmetic_intensity.matmul_intensity, args: {{B: B, D: 4096, F: 14336}}}}
  r: {{label: Rate, unit: FLOP/s, expr: {THEORY}.arithmetic_intensity.roofline_flops_per_s, args: {{intensity: i, flops_per_s: 1.0e+15, bytes_per_s: 3.0e+12}}}}
  roof: {{label: Roof, unit: FLOP/s, show: false, expr: {THEORY}.arithmetic_intensity.roofline_flops_per_s, args: {{intensity: I, flops_per_s: 1.0e+15, bytes_per_s: 3.0e+12}}}}
plot: {{x: {{name: I, label: Intensity, unit: FLOP/B, min: 0.5, max: 8192, scale: log}}, y: roof, y_scale: log, dot: {{x: i, y: r, drag: B}}, rows: B}}
"""


def test_a_dragged_dot_stays_on_its_curve_and_its_input_stays_whole() -> None:
    script = Script(read_spec(yaml.safe_load(DOT)))
    state = script.start()
    where = "play.dotAt(spec, formulas, dukpy.v, 640)"
    drag = "play.draggedTo(spec, formulas, dukpy.v, play.axisAt(spec, formulas, dukpy.v, dukpy.x, 640))"
    for B in (1, 2, 3, 16, 295, 4000, 8192):
        x, _ = script.ask(where, v=state | {"B": B})
        assert script.ask(drag, v=state, x=x) == B
    assert script.ask(drag, v=state, x=-50) == 1
    assert script.ask(drag, v=state, x=2000) == 8192
    for pixel in range(100, 600, 7):
        B = script.ask(drag, v=state, x=pixel)
        assert B % 1 == 0
        now = script.numbers(state | {"B": B})
        assert now["r"] == pytest.approx(min(1e15, now["i"] * 3e12), rel=1e-12)


def test_the_rows_of_the_picture_are_those_of_the_input() -> None:
    script = Script(read_spec(yaml.safe_load(DOT)))
    for B in (1, 2, 12, 13, 8192):
        rows = script.shown(script.start() | {"B": B})["rows"]
        drawn = rows.count('class="tp-row"') // 8 - 1
        assert drawn == min(B, 12)
        assert (f"+ {B - 12:,}<" in rows) == (B > 12)
        assert rows.count('class="tp-weight"') == 2 * 64


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
        (1, "tokens", "1 token"),
        (1, "s", "1 s"),
        (12.5, "%", "12.5%"),
        (1.2e13, "", "1.2×10¹³"),
        (0.00001, "", "10⁻⁵"),
        (999.6, "", "1,000"),
        (7.76e-6, "s", "7.76 µs"),
        (math.inf, "s", "none"),
    ],
)
def test_numbers_are_written_as_a_person_would(
    ask: Any, value: float, unit: str, text: str
) -> None:
    number = "1 / 0" if value == math.inf else "dukpy.v"  # JSON has no infinity
    assert ask(f"play.readable({number}, dukpy.u)", v=min(value, 1e300), u=unit) == text


@pytest.mark.parametrize(
    ("low", "high", "log"),
    [
        (0, 1, False),
        (0.3, 17, False),
        (1, 512, True),
        (1e-3, 40, True),
        (2, 5, True),
        (11, 18, True),
    ],
)
def test_ticks_lie_inside_the_axis_and_are_enough_to_read_it(
    ask: Any, low: float, high: float, log: bool
) -> None:
    found = ask("play.ticks(dukpy.a, dukpy.b, dukpy.log)", a=low, b=high, log=log)
    assert 2 <= len(found) <= 12
    assert all(low * (1 - 1e-6) <= tick <= high * (1 + 1e-6) for tick in found)


def test_the_box_makes_its_point_without_script() -> None:
    play = read()
    html = book_play.opening(play, "play-x", Script(play))
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
        (("bytes_per_s: W, ", ""), "step_time_s cannot be called with symbols: TypeError"),
        (("y: [step, floor]", "y: [step, speed]"), "y names 'speed', which is no output"),
        (("y: [step, floor]", "y: [step, cache]"), "share one axis and so one unit"),
        (("x: B, y", "x: chip, y"), "x must be a slider"),
        (("title: A box with everything", ""), "'title' is missing"),
        (("keys: [H100 SXM, TPU v5e]", "keys: [H1000]"), "there is no 'H1000'"),
        (("W: hbm_bytes_per_s", "W: 3.0e+12"), "there is no"),
        (("options: {of:", "options: {H100:"), "unknown key 'H100'"),
        (("value: 32", "value: 32.5"), "are multiples of its step, 1"),
        (("unit: s, expr", "unit: s, needs_room: true, expr"), "needs room, and the box says"),
        (("plot: {x: B", "room: {needs: step, has: floors}\nplot: {x: B"), "names 'floors'"),
        (("formula: 100", "expresion: 1, formula: 100"), "unknown key 'expresion'"),
        (("* cache / (B", "* cash / (B"), "needs 'cash', which is no input"),
        (("min: 1,", "min: 0,"), "a log scale starts above zero"),
    ],
)
def test_a_mistake_in_a_box_is_one_clear_sentence(change: tuple[str, str], complaint: str) -> None:
    assert change[0] in BOX
    with pytest.raises(formula.PlayError, match=complaint.replace("(", r"\(")):
        read(BOX.replace(*change))
