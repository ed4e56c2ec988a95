"""An answer and its check in one cell, as editors merge them and as people write them: what is
right above the call of its check is right, and what a cell did not come to is told why."""

from __future__ import annotations

import re

import pytest
from test_grading_clumsy import Cells, cells_of, graded, id_of, is_answer, own, wrong

from twophase.grading.files.cell_names import defined

TOPIC = "kv_cache"
FIRST, SECOND = "kv_cache-kv_bytes", "kv_cache-max_batch"
AGAIN = "def kv_bytes(*args): return -1"
MERGED = "{a}\n{call}\n{below}\n{b}\n"


def merged(template: str, base: bool = True) -> Cells:
    """The notebook with its first two answers in one cell, which has the first one's id, or none;
    their own check cells are gone."""
    cells = cells_of(TOPIC)
    source = {id_of(c): c["source"] for c in cells if is_answer(c)}
    whole = template.replace("{a}", source[FIRST]).replace("{b}", source[SECOND])
    gone = [i + end for i in (FIRST, SECOND) for end in ("", "-check")]
    first = next(c for c in cells if id_of(c) == FIRST) if base else own("")
    rest = [c for c in cells[1:] if id_of(c) not in gone]
    return [cells[0], first | {"source": whole}, *rest]


def of_two(cells: Cells) -> dict[str, str]:
    return {i: why for i, why in wrong(graded(TOPIC, cells)) if i in (FIRST, SECOND)}


CALL = f"check({FIRST!r})"


@pytest.mark.parametrize(
    ("call", "below"),
    [
        (f"{CALL}; del kv_bytes", ""),
        (f"{CALL}; kv_bytes = None", ""),
        (f's = \'ü→\'; {CALL}; s = """\nnotes"""', AGAIN),
        (f"{CALL}; \\\nz = 1", AGAIN),
        (f"print('# 1:', {CALL})", AGAIN),
        (f"check ({FIRST!r})", AGAIN),
        (f"def ok():\n    assert {CALL}\nok()", AGAIN),
        (f"ok = lambda: {CALL}\nok()", AGAIN),
        (f"!echo pip install \\\n    numpy\n{CALL}", AGAIN),
        (f"assert {CALL} == 2\nif {CALL} < 2: raise ValueError", AGAIN),
        (f"assert {CALL} + {CALL} == 4 and sum([{CALL}, {CALL}]) >= 4", AGAIN),
        (f"%time {CALL}", "from __future__ import annotations"),
    ],
)
def test_what_is_right_at_its_check_is_right_however_that_is_called(call: str, below: str) -> None:
    assert of_two(merged(MERGED.replace("{call}", call).replace("{below}", below))) == {}


def test_a_test_above_the_answer_calls_the_check_where_it_is_called() -> None:
    above = f"def test_it():\n    assert {CALL}\n"
    assert of_two(merged(f"{above}{{a}}\ntest_it()\n{AGAIN}\n{{b}}")) == {}


@pytest.mark.parametrize("magic", ["%%time", "%%capture out", "\n%%time"])
def test_a_cell_that_is_timed_or_captured_is_asked_at_its_checks_too(magic: str) -> None:
    assert of_two(merged(f"{magic}\n{{a}}\n{CALL}\n{AGAIN}\n{{b}}")) == {}


def test_lines_that_end_as_on_an_old_mac_are_lines() -> None:
    assert of_two(merged(f"{{a}}\r{CALL}\r{AGAIN}\r{{b}}\r")) == {}


def test_what_a_cell_too_long_to_parse_defines_where_its_lines_begin_is_known() -> None:
    table = "TABLE = [\n" + "    1234567,\n" * 6000 + "]\n"
    assert defined(f"{table}async def f(): pass\nclass A: x = 1\nx == 1") == {"TABLE", "f", "A"}
    assert of_two(merged(f"{{a}}\n{CALL}\n{table}{{b}}")) == {}


@pytest.mark.parametrize("base", [True, False], ids=["of the first's id", "of no id"])
@pytest.mark.parametrize(
    ("line", "how"),
    [
        ("1 / 0", "stopped with ZeroDivisionError: division by zero"),
        ("input()", "stopped with EOFError: .* Nobody types where answers are graded"),
        ("import os; os._exit(1)", "was stopped: Its process ended"),
    ],
)
def test_what_a_cell_did_not_come_to_is_told_where_it_stopped(
    line: str, how: str, base: bool
) -> None:
    """Above a check, and the second answer below that."""
    dies = "_exit" in line
    template = f"{{a}}\n{CALL}\n{line}\n{{b}}" if dies else f"{{a}}\n{line}\n{CALL}\n{{b}}"
    told = of_two(merged(template, base))
    assert set(told) == {SECOND}
    whose = "Its process ended" if dies and not base else f"(Cell 2|Its cell) {how}"
    assert re.search(whose, told[SECOND])
    assert "restart the kernel" not in told[SECOND]


def test_a_stub_below_the_check_in_its_cell_makes_no_stub_of_an_answer() -> None:
    """Another cell harms it, as it would if the stub were in a cell of its own."""
    harm = own("def sum(x): raise NotYet('x')")
    cells = merged(
        "def kv_bytes(L, D, N, K, H, bytes_per_value):\n"
        "    return 2 * L * K * H * sum([bytes_per_value])\n"
        f"{CALL}\ndef max_batch(*args): raise NotYet({SECOND!r})"
    )
    assert set(of_two([cells[0], harm, *cells[1:]])) == {SECOND}
