"""An answer and its check in one cell, as editors merge them and as people write them: what is
right above the call of its check is right, and what a cell did not come to is told why."""

from __future__ import annotations

import re

import pytest
from test_grading_clumsy import Cells, cells_of, graded, id_of, is_answer, own, wrong

from twophase.grading.files.cell_names import defined, used
from twophase.grading.files.check_calls import parts

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
A_LINE = "def kv_bytes(L, D, N, K, H, bytes_per_value): return 2 * L * K * H * bytes_per_value"


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
        (f"if {CALL} == 0 or {CALL} is None: raise ValueError", AGAIN),
        (f"assert {CALL} != 0 and {CALL} / 2 == 1.0 and round({CALL}) == 2", AGAIN),
        (f"n = 2\nn -= {CALL}\nassert n == 0 or {CALL}.out_of == 2", AGAIN),
        (f"took = {{}}\ntook['x'] = %timeit -o -n1 -r1 1\n{CALL}\nnp.*load*?", AGAIN),
        (f"import asyncio\nt = asyncio.create_task(asyncio.sleep(0))\nawait t\n{CALL}", AGAIN),
        (f"p = {CALL}\nassert int(p) == float(p) == 2 and 0 < p < 10 and p - 2 == 0", AGAIN),
        (f"p = {CALL}\nassert f'{{p:g}} {{p:.1f}}' == '2 2.0' and '%d' % p == '2'", AGAIN),
        (f"p = {CALL}\nassert np.array([p]).sum() == p ** 2 / 2 == [1, 2][int(p) - 1]", AGAIN),
        (f"p = {CALL}\nassert repr(p).startswith('Right. 2 of 2 points'); p._repr_html_()", AGAIN),
        (f"p = {CALL}\nassert p in {{2: 1}} and not p > p.out_of; p._ipython_display_()", AGAIN),
    ],
)
def test_what_is_right_at_its_check_is_right_however_that_is_called(call: str, below: str) -> None:
    assert of_two(merged(MERGED.replace("{call}", call).replace("{below}", below))) == {}


INDENT, PROMPT, NUMBERED = "    ", ">>> ", "In [3]: "
GOES_ON = {INDENT: INDENT, PROMPT: "... ", NUMBERED: "   ...: "}


@pytest.mark.parametrize("prompt", GOES_ON)
@pytest.mark.parametrize("base", [True, False], ids=["with its id", "without an id"])
def test_a_cell_with_prompts_or_an_indent_is_what_ipython_runs(prompt: str, base: bool) -> None:
    source = f"{A_LINE.replace(': ', ':NEXT', 1)}\n".replace("NEXT", "\n    ")
    if prompt == INDENT:  # what is cut off below the check would have another prompt
        source += f"{CALL}\n{AGAIN}\n"
    first, *rest = source.splitlines()
    whole = "\n".join([prompt + first, *(GOES_ON[prompt] + line for line in rest)])
    assert FIRST not in of_two(merged(whole, base))


@pytest.mark.parametrize("how", [
    "globals().update(kv_bytes=lambda L, D, N, K, H, b: 2 * L * K * H * b)",
    f"exec({'def kv_bytes(L, D, N, K, H, b): return 2 * L * K * H * b'!r})",
    "match [lambda L, D, N, K, H, b: 2 * L * K * H * b]:\n    case [kv_bytes]: pass",
    "get_ipython().push({'kv_bytes': lambda L, D, N, K, H, b: 2 * L * K * H * b})",
])  # fmt: skip
def test_an_answer_that_no_cell_defines_in_words_is_asked_for_all_the_same(how: str) -> None:
    assert FIRST not in of_two(merged(f"{how}\n{CALL}", base=False))


ALIASES = {
    "imported": ("from twophase.lab import check as verify", "verify({!r})"),
    "assigned": ("verify = check", "%time verify({!r})"),
    "of a module": ("import twophase.lab as lab\nverify = lab.check", "verify({!r})"),
    "partial": ("from functools import partial", "partial(check, {!r})()"),
    "bound": ("from functools import partial\nverify = partial(check, {!r})", "verify()"),
    "handed on": ("def ask(how, i): how(i)", "ask(check, {!r})"),
    "mapped": ("", "assert all(map(check, [{!r}]))"),
    "in a function": ("def ask(ids): return [*map(check, ids)]", "ask([{!r}])"),
    "in a list": ("tools = [check, print]", "tools[0]({!r})"),
    "looked up": ("import twophase.lab", "getattr(twophase.lab, 'check')({!r})"),
    "a global": ("", "globals()['check']({!r})"),
    "annotated": ("from typing import Any\nverify: Any = check", "verify({!r})"),
    "an id by name": ("first = {!r}", "check(first)"),
    "an id of a list": (f"ids = [{{!r}}, {SECOND!r}]", "check(ids[0])"),
    "an id in pieces": ("", "check('kv_cache' + '-kv_bytes')"),
    "an id in a dict": ("ids = {{'first': {!r}}}", "check(ids['first'])"),
    "a default": ("def ask(i={!r}): check(i)", "ask()"),
    "a closure": ("def of(i): return lambda: check(i)\nfirst = of({!r})", "first()"),
    "a method": (
        "class Mine:\n    def ask(self, i): return check(i)\nmine = Mine()",
        "mine.ask({!r})",
    ),
    "a decorator": (
        "def judged(i):\n    def wrap(f): check(i)\n    return wrap",
        "@judged({!r})\ndef nothing(): pass",
    ),
    "a class of tests": (
        "import unittest\nclass T(unittest.TestCase):\n    def test(self): check({!r})",
        "unittest.main(argv=[''], exit=False)",
    ),
    "awaited": ("async def ask(i): return check(i)", "await ask({!r})"),
    "a name anew": ("this = 'kv_cache-rope'\nthis = {!r}", f"check(this)\nthis = {SECOND!r}"),
}


@pytest.mark.parametrize("above", [True, False], ids=["in a cell above", "in the same cell"])
@pytest.mark.parametrize("alias", ALIASES)
def test_a_check_is_called_by_whatever_name_and_id_the_notebook_gave_it(
    alias: str, above: bool
) -> None:
    first, call = (line.format(FIRST) for line in ALIASES[alias])
    trial = f"{AGAIN}\n{{b}}\ncheck({SECOND!r})\ndel max_batch"
    if not above:
        assert of_two(merged(f"{first}\n{{a}}\n{call}\n{trial}")) == {}
        return
    cells = merged(f"{{a}}\n{call}\n{trial}")
    assert of_two([cells[0], own(first), *cells[1:]]) == {}


def test_points_that_are_shown_below_a_trial_are_no_check_called_again() -> None:
    shown = f"print({FIRST!r}, points)"
    assert of_two(merged(f"{{a}}\npoints = {CALL}\n{AGAIN}\n{shown}\n{{b}}")) == {}


@pytest.mark.parametrize(
    "template",
    [
        f"if True:\n    {A_LINE}\n    {CALL}\n    kv_bytes = None\n{{b}}",
        f"with suppress():\n    {A_LINE}\n    {CALL}\n    del kv_bytes\n{{b}}",
        f"{{a}}\nfor _ in [1]:\n    {CALL}\n    kv_bytes = None\n{{b}}",
        f"def main():\n    global kv_bytes\n    {A_LINE}\n    {CALL}\n    kv_bytes = None\n"
        "main()\n{b}",
        f"{{a}}\n{CALL}\n{AGAIN}\n{{b}}\nT = {'a' * 60_000!r}",
        f"{{b}}\ncheck({SECOND!r})\nmax_batch = None\n{{a}}\nT = {'a' * 60_000!r}",
    ],
    ids=["if", "with", "for", "def", "a long cell", "of another's id"],
)
@pytest.mark.parametrize("base", [True, False], ids=["of the first's id", "of no id"])
def test_a_trial_that_no_cut_can_part_from_its_check_is_told(template: str, base: bool) -> None:
    """Nobody is told to restart the kernel, which would show the same as before."""
    cells = merged(template, base)
    seen = graded(TOPIC, [cells[0], own("from contextlib import suppress"), *cells[1:]])
    lost = dict(wrong(seen)).keys() & {FIRST, SECOND}
    [(where, says)] = [(f.where, f.says) for f in seen.flags if f.name == "defined_again"]
    assert lost <= {where}, "or it is right by itself, and told all the same"
    assert re.search(r"\bCell 3 defines it (?:and then changes|again)", says)
    assert "restart" not in "".join(why for _, why in wrong(seen))


@pytest.mark.parametrize(
    "below",
    [
        f"print({FIRST!r}, 'passed the check')",
        f'note = "as check({FIRST!r}) said"',
        f"""{FIRST!r}
class Tree:
    def check(self, i): pass
Tree().check({FIRST!r})""",
    ],
    ids=["printed", "quoted", "another check"],
)
def test_words_about_a_check_below_a_trial_are_no_check(below: str) -> None:
    assert of_two(merged(f"{{a}}\n{CALL}\n{AGAIN}\n{below}\n{{b}}")) == {}


def test_a_check_that_is_called_again_below_all_others_is_the_one_that_counts() -> None:
    """By another name, in a cell below the last check of the notebook: as it is seen there."""
    cells = cells_of(TOPIC)
    for cell in cells:
        if id_of(cell) == FIRST:
            cell["source"] = AGAIN
    right = next(c["source"] for c in cells_of(TOPIC) if id_of(c) == FIRST)
    again = own(f"(lambda how: how({FIRST!r}))(globals()['che' + 'ck'])")
    assert of_two([*cells, own(right), again]) == {}
    assert set(of_two([*cells, again, own(right)])) == {FIRST}


@pytest.mark.parametrize("base", [True, False], ids=["of the first's id", "of no id"])
def test_each_answer_of_a_merged_cell_has_a_trial_below_its_check(base: bool) -> None:
    below = "def max_batch(*args): return -1"
    template = f"{{a}}\n{CALL}\n{AGAIN}\n{{b}}\ncheck({SECOND!r})\n{below}"
    assert of_two(merged(template, base)) == {}


def test_ids_by_name_are_looked_for_below_where_all_else_is_asked() -> None:
    """Also if the notebook has no cell at all for an exercise."""
    ids = f"ids = {{'a': {FIRST!r}, 'b': {SECOND!r}}}"
    cells = merged(f"{ids}\n{{a}}\ncheck(ids['a'])\n{AGAIN}\n{{b}}\ncheck(ids['b'])\ndel max_batch")
    assert of_two(cells[:2]) == {}


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


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("if x:\n    !ls\ny = z", "y"),
        (">>> y = z", "y"),
        ("y = (a\n% b)", "y"),
        ("    y = z\n    # a note", "y"),
        ("n = [m := i for i in z]", "m n"),
        ("f = lambda: (m := 1)", "f"),
        ("match z:\n    case [a, *b] as c:\n        pass", "a b c"),
    ],
)
def test_what_a_cell_binds_and_uses_is_known_where_a_line_is_not_python(
    source: str, names: str
) -> None:
    assert defined(source) == {*names.split()}
    assert used(source)


PASTE = """>>> def kv_bytes(L, D, N, K, H, bytes_per_value):
...     return 2 * L * K * H * bytes_per_value
...
>>> print("a"); print("b"); x = 1
"""


@pytest.mark.parametrize("paste", [PASTE, re.sub(r"(?m)^>>> ", "In [4]: ", PASTE)])
def test_several_statements_in_a_line_behind_a_prompt_are_cut_where_they_end(paste: str) -> None:
    numbered = "In [" in paste
    source = paste.replace("... ", "   ...: ").replace("...\n", "   ...: \n") if numbered else paste
    cut = [part.strip() for part in parts(source, ["kv_bytes"])]
    assert [part.splitlines()[-1] for part in cut] == ['print("a")', 'print("b")', "x = 1"]
    cells = merged("{b}")
    assert FIRST not in of_two([cells[0], own(source), *cells[1:]])


def test_a_value_in_the_middle_of_a_cell_is_not_the_last_one_that_was_shown() -> None:
    answer = A_LINE.replace("return 2", "return TWO")
    cells = merged(f"float(3)\nTWO = _\n{answer}\n{CALL}\n{AGAIN}\n{{b}}")
    assert of_two([cells[0], own("2"), *cells[1:]]) == {}


def test_who_wants_all_values_shown_has_them() -> None:
    shell = "from IPython.core.interactiveshell import InteractiveShell as S"
    cells = merged(f"1\nTWO = _ + 1\n{A_LINE.replace('return 2', 'return TWO')}\n{CALL}\n{{b}}")
    every = own(f"{shell}\nS.ast_node_interactivity = 'all'")
    assert of_two([cells[0], every, *cells[1:]]) == {}


WRONG = "FACTOR = 1\n" + A_LINE.replace("return 2", "return FACTOR")
PASSED = """def passed(i):
    try:
        return check(i)
    except Exception:
        return None"""


@pytest.mark.parametrize(
    ("trial", "helper"),
    [
        (f"try:\n    {CALL}\nexcept Exception:\n    FACTOR = 2\n    {CALL}", ""),
        (f"for FACTOR in (1, 2):\n    try:\n        {CALL}; break\n    except Exception: pass", ""),
        (
            f"def attempt(n):\n    global FACTOR\n    FACTOR = n\n    return passed({FIRST!r})",
            PASSED,
        ),
        (f"if not passed({FIRST!r}):\n    {A_LINE}\n    passed({FIRST!r})", PASSED),
        (f"while not passed({FIRST!r}): FACTOR += 1", PASSED),
    ],
    ids=["an except", "a sweep", "a global", "another answer", "a while"],
)
def test_an_answer_that_is_mended_when_its_check_has_failed_is_told_of(
    trial: str, helper: str
) -> None:
    """In a kernel it fails, and the next one says right."""
    cells = merged(f"{WRONG}\n{trial}\n{{b}}")
    seen = graded(TOPIC, [cells[0], own(helper), *cells[1:]])
    assert FIRST in dict(wrong(seen))
    told = {flag.where: flag.says for flag in seen.flags if flag.name == "defined_again"}
    assert "may go on where a check has failed, and here none ever does" in told[FIRST]
    assert SECOND not in told


def test_a_loop_over_checks_blames_nothing_else() -> None:
    loop = f"points = 0\nfor K in [{FIRST!r}, {SECOND!r}]:\n    points += check(K)"
    seen = graded(TOPIC, merged(f"{WRONG}\n{{b}}\n{loop}"))
    assert FIRST in dict(wrong(seen))
    assert not [flag for flag in seen.flags if flag.name == "defined_again"]


def test_a_check_that_the_notebook_has_wrapped_runs_its_untouched_check_cells() -> None:
    """What they do there, an answer may need."""
    wrap = "import twophase.lab as lab\nKEPT = {}\ndef answer(f): KEPT[f.__name__] = f\n"
    wrap += "def check(i):\n    globals().update(KEPT)\n    return lab.check(i)"
    cells = [
        c | {"source": f"@answer\n{A_LINE}"} if id_of(c) == FIRST else c for c in cells_of(TOPIC)
    ]
    assert of_two([cells[0], own(wrap), *cells[1:]]) == {}


def test_a_notebook_knows_that_it_is_one_and_hints_are_texts() -> None:
    line = "assert get_ipython().__class__.__name__ == 'ZMQInteractiveShell'"
    shown = f"hint({FIRST!r}).text.upper(); progress()._repr_html_(); solution({FIRST!r}).source"
    assert of_two(merged(f"{line}\n{shown}\n{{a}}\n{{b}}")) == {}


def test_two_attempts_in_one_cell_without_a_check_are_no_matter_of_a_check() -> None:
    """What stands last is asked, as in the kernel: its check stands below."""
    seen = graded(TOPIC, [own(f"def kv_bytes(*sizes):\n    return 2\n\n{AGAIN}")])
    assert dict(wrong(seen)).keys() >= {FIRST}
    assert "defined_again" not in {flag.name for flag in seen.flags}
