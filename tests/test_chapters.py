"""What every chapter has: exercises sitting by sitting, cells that fit a screen, ten lines."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from twophase.checks import registry
from twophase.theory.catalog import hardware, model
from twophase.theory.deployment import Deployment
from twophase.theory.workload import Workload

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))

from book_play_script import Script  # noqa: E402
from book_play_spec import read_spec  # noqa: E402

CHAPTERS = sorted((ROOT / "book").glob("[0-9][0-9]_*.md"))
CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```$", re.M | re.S)
BOX = re.compile(r"^:::\{exercises\} \w+\n:only: ([\w, ]+)$", re.M)
chapters = pytest.mark.parametrize("page", CHAPTERS, ids=lambda p: p.stem)


def topic_of(page: Path) -> str:
    return page.stem.partition("_")[2]


def sections(text: str) -> dict[str, str]:
    """The text under each heading of the second level."""
    parts = re.split(r"^## (.+)$", CELL.sub("", text), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def shown(cell: str) -> bool:
    head = cell.partition("---\n")[2].partition("\n---")[0] if cell.startswith("---") else cell[:60]
    return not re.search(r"(hide|remove)-(input|cell)", head)


def code_of(cell: str) -> str:
    """The code of a cell, its options left out."""
    if cell.startswith("---\n"):
        return cell.split("\n---\n", 1)[1]
    return re.sub(r"\A:tags:.*\n\n?", "", cell)


@chapters
def test_the_code_that_is_shown_fits_a_screen(page: Path) -> None:
    cells = [code_of(cell) for cell in CELL.findall(page.read_text("utf8")) if shown(cell)]
    assert cells
    for code in cells:
        lines = code.rstrip("\n").split("\n")
        assert len(lines) <= 25, f"{len(lines)} lines:\n{code[:200]}"
        assert max(map(len, lines)) <= 80, max(lines, key=len)


@chapters
def test_a_command_or_listing_in_the_text_is_no_wider_than_code(page: Path) -> None:
    listing = re.compile(r"^```\w*\n(.*?)^```$", re.M | re.S)
    fenced = re.compile(r"^```\{.*?^```$", re.M | re.S)
    for text in listing.findall(fenced.sub("", page.read_text("utf8"))):
        assert max(map(len, text.split("\n"))) <= 80, text


@chapters
def test_every_table_is_its_cells_last_word_or_nobody_sees_it(page: Path) -> None:
    for cell in CELL.findall(page.read_text("utf8")):
        for statement in ast.parse(code_of(cell)).body[:-1]:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                called = ast.unparse(statement.value.func)
                assert called not in ("Table", "Markdown", "compare"), ast.unparse(statement)[:200]
                assert not called.endswith(".table"), ast.unparse(statement)[:200]


@chapters
def test_every_section_asks_a_question_and_has_at_most_one_box_on_the_sources(page: Path) -> None:
    found = sections(page.read_text("utf8"))
    assert len(found) > 4
    for title, text in found.items():
        assert text.count("{sources-say}") <= 1, title
        if title not in ("Your turn", "Ten lines to keep", "Exercises"):
            assert ":::{question}" in text, title


def drawing_cells(text: str) -> list[str]:
    """The cells whose last word is a drawing, a mechanism, or one that is clicked."""
    found = []
    for cell in CELL.findall(text):
        last = ast.parse(code_of(cell)).body[-1]
        if ast.unparse(last).startswith(("Drawing(", "Mechanism(", "Clicked(")):
            found.append(cell)
    return found


@chapters
def test_every_major_section_has_a_drawing_or_something_to_play_with(page: Path) -> None:
    text = page.read_text("utf8")
    parts = re.split(r"^## (.+)$", text, flags=re.M)
    for title, part in zip(parts[1::2], parts[2::2], strict=True):
        if title not in ("Your turn", "Ten lines to keep"):
            assert drawing_cells(part) or ":::{play}" in part, title
    assert any("\nMechanism(" in cell for cell in drawing_cells(text)), "nothing to step through"


@chapters
def test_every_drawing_has_a_number_and_a_caption(page: Path) -> None:
    named = []
    for cell in drawing_cells(page.read_text("utf8")):
        head = yaml.safe_load(cell.removeprefix("---\n").split("\n---\n")[0])
        figure = head["mystnb"]["figure"]
        assert figure["name"].startswith("fig-"), figure
        assert len(figure["caption"].split()) > 4, figure
        named.append(figure["name"])
    assert len(set(named)) == len(named) > 3


def test_no_two_formulas_or_figures_of_the_book_have_one_label() -> None:
    text = "\n".join(page.read_text() for page in (ROOT / "book").glob("*.md"))
    labels = re.findall(r"^:(?:label|name): +([\w-]+)$", text, re.M)
    assert len(labels) > 40
    assert len(labels) == len(set(labels)), sorted(x for x in set(labels) if labels.count(x) > 1)


@chapters
def test_a_chapter_ends_with_ten_lines_to_keep(page: Path) -> None:
    lines = sections(page.read_text("utf8"))["Ten lines to keep"]
    assert re.findall(r"^(\d+)\. ", lines, flags=re.M) == [str(n) for n in range(1, 11)]


@chapters
def test_exercises_follow_the_text_sitting_by_sitting(page: Path) -> None:
    """Each exercise stands once on the page, in the notebook's order, and no sitting's reading is
    without end: its minutes are those announced, at most 45."""
    text, topic = page.read_text("utf8"), topic_of(page)
    placed = [slug.strip() for box in BOX.findall(text) for slug in box.split(",")]
    assert [f"{topic}-{slug}" for slug in placed] == registry.ids(topic)
    announced = re.search(r"^:sittings: ([\d, ]+)$", text, flags=re.M)
    assert announced is not None
    minutes = [int(m) for m in announced[1].split(",")]
    assert max(minutes) <= 45
    marks = re.findall(r"^:::\{sitting\} (\d+)\n:minutes: (\d+)$", text, flags=re.M)
    assert [(int(n), int(m)) for n, m in marks] == [*enumerate(minutes, 1)][1:]


@chapters
def test_the_notebook_has_the_pages_sittings(page: Path) -> None:
    text, topic = page.read_text("utf8"), topic_of(page)
    on_page: dict[int, list[str]] = {}
    parts = re.split(r"^:::\{sitting\} (\d+)$", text, flags=re.M)
    for number, part in zip([1, *map(int, parts[1::2])], parts[0::2], strict=True):
        slugs = [slug.strip() for box in BOX.findall(part) for slug in box.split(",")]
        if slugs:
            on_page[number] = [f"{topic}-{slug}" for slug in slugs]
    in_notebook: dict[int, list[str]] = {}
    number = 0
    for cell in nbformat.read(ROOT / "solutions" / f"{page.stem}.ipynb", as_version=4).cells:
        head = re.match(r"#+ Sitting (\d+)", cell.source)
        number = int(head[1]) if head else number
        nbgrader: dict[str, Any] = cell.metadata.get("nbgrader", {})
        if nbgrader.get("solution"):
            in_notebook.setdefault(number, []).append(nbgrader["grade_id"])
    assert in_notebook == on_page


@cache
def play(page: str, box: str) -> Script:
    text = (ROOT / "book" / f"{page}.md").read_text("utf8")
    body = text.split(f":::{{play}} {box}\n")[1].split("\n:::\n")[0]
    return Script(read_spec(yaml.safe_load(body)))


def values(box: Script, **state: float) -> dict[str, float]:
    """The box's numbers in a state, as the page's script has them; infinite where there is none."""
    found = box.numbers(box.start() | state)
    return {name: float("inf") if n is None else n for name, n in found.items()}


def test_prompt_and_output_share_the_flops_as_the_tokens_but_for_attentions_pairs() -> None:
    box = play("01_two_phases", "generation-cost")
    for m, n in ((1024, 512), (4096, 2048), (512, 1024), (8000, 7000)):
        now = values(box, m=m, n=n)
        passed = m + n - 1  # tokens that go through the model
        pairs = 1 - 2e-12 * now["n_params"] * passed / now["cached"]  # results are in TFLOP
        assert abs(now["prefill"] / now["cached"] - m / passed) <= pairs
        assert (pairs < 0.05) == (passed < 2500)  # "few" at the box's first state
    assert now["prefill"] < now["cached"] / 2  # 8,000 of 15,000 tokens, and not most of the FLOPs


def test_a_crowd_of_chats_above_the_weights_critical_batch_still_waits_for_memory() -> None:
    """The box's first state, and what shortening the context does."""
    box = play("02_arithmetic_intensity", "roofline-calculator")
    first = values(box)
    assert box.start()["B"] > first["crit"]
    assert first["reading"] > first["compute"]
    assert first["crit_step"] == float("inf")
    short = values(box, S=100)
    assert first["crit"] < short["crit_step"] < box.start()["B"]
    assert short["compute"] > short["reading"]


def test_the_boxes_on_steps_show_the_planners_numbers() -> None:
    """Parameters, memory, time and critical batch: one number, one function."""
    crowd = play("02_arithmetic_intensity", "roofline-calculator")
    wall = play("04_latency_throughput", "latency-wall")
    llama3, llama2 = model("llama-3-8b"), model("llama-2-13b")
    h100 = hardware("h100")
    for B, S in ((1, 1), (512, 100), (3000, 380), (200_000, 390), (64, 8192)):
        d = Deployment(llama3, h100, Workload(batch=B, context=S))
        seen, times = values(crowd, B=B, S=S), d.step(B, S)
        first = d.critical_batch(lambda B, d=d, S=S: d.step(B, S))  # type: ignore[misc]
        above = seen["crit_step"]
        assert above == float("inf") if first is None else int(above) + 1 == first
        assert seen["reading"] == pytest.approx(times.memory_s, rel=1e-12)
        assert seen["compute"] == pytest.approx(times.compute_s, rel=1e-12)
    for B, S, K in ((70, 1024, 40), (600, 128, 8), (1, 32768, 1)):
        arch = llama2.with_kv_heads(K)
        d = Deployment(arch, h100, Workload(batch=B, context=S, usable_fraction=1))
        seen, times = values(wall, B=B, S=S, K=K), d.step(B, S)
        assert seen["n_params"] == arch.n_params()
        assert seen["need"] == d.total_bytes(B, S)
        assert seen["wall"] == d.max_batch(S)
        assert seen["step"] == pytest.approx(times.overlapped_s, rel=1e-12)
        assert seen["compute"] == pytest.approx(times.compute_s, rel=1e-12)


def test_the_box_on_latency_starts_at_the_wall_and_turns_compute_bound_before_the_next() -> None:
    box = play("04_latency_throughput", "latency-wall")
    start = values(box)
    assert start["wall"] == box.start()["B"]
    assert start["step"] > start["compute"]
    short = values(box, B=600, S=128, K=8)  # the caption's claim
    assert short["step"] == short["compute"]
    assert short["wall"] > 600


def test_the_box_on_memory_starts_beyond_the_wall() -> None:
    box = play("03_kv_cache", "kv-wall")
    assert 0 < values(box)["fits"] < box.start()["B"]


def test_the_box_on_groups_starts_below_the_ridge_and_crosses_it_in_two_ways() -> None:
    box = play("05_grouped_query_attention", "gqa-intensity")
    first = values(box)
    assert first["found"] < first["ridge"]
    assert first["group"] > box.start()["G"]
    for crossing in ({"G": 32, "T": 16}, {"G": 128, "T": 4}):
        now = values(box, **crossing)
        assert now["found"] > now["ridge"]
        assert now["group"] < crossing["G"]


def test_the_box_on_outliers_starts_with_thirteen_levels_for_the_others() -> None:
    box = play("12_quantization", "outlier-grid")
    first, alone = values(box), values(box, largest=3, bits=4)
    assert first["left"] == 13 < alone["left"]  # the caption's claim
    assert first["error"] > alone["error"]
