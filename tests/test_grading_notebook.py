"""Reading notebooks: nbformat's own readings agree with ours, and no bytes raise anything but
Unreadable."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hostile.course import RIGHT, TOPIC, answer_cell, cell, cells, dump, release, setup_cell
from hostile.notebooks import version_3
from hypothesis import given
from hypothesis import strategies as st

from twophase.grading.errors import Unreadable
from twophase.grading.files.notebook import parse, read_notebook
from twophase.grading.judge.which_cells_run import make_plan
from twophase.grading.release.release import Source

json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda x: (
        st.lists(x, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "cells",
                    "worksheets",
                    "metadata",
                    "nbgrader",
                    "source",
                    "grade_id",
                    "cell_type",
                    "input",
                ]
            ),
            x,
        )
    ),
    max_leaves=25,
)


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_unreadable(data: bytes) -> None:
    _parses_or_unreadable(data)


@given(json_like)
def test_no_json_raises_anything_but_unreadable_and_all_of_it_can_be_planned(tree: Any) -> None:
    _parses_or_unreadable(json.dumps({"cells": [tree]}).encode())
    _parses_or_unreadable(json.dumps(tree).encode())


def _parses_or_unreadable(data: bytes) -> None:
    try:
        notebook = parse(data)
    except Unreadable:
        return
    make_plan(notebook, release())


@pytest.mark.parametrize(
    "data", [dump(cells(dict(RIGHT))), version_3()], ids=["version 4", "version 3"]
)
def test_the_cells_are_those_that_nbformat_reads(data: bytes) -> None:
    theirs = nbformat.reads(data.decode(), as_version=4)
    ours = parse(data)
    assert [(c.kind, c.source) for c in ours.cells] == [
        (c.cell_type, c.source) for c in theirs.cells
    ]
    assert [c.grade_id for c in ours.cells] == [
        c.metadata.get("nbgrader", {}).get("grade_id", "") for c in theirs.cells
    ]


def test_a_source_in_lines_is_the_same_source() -> None:
    split = cell("")
    split["source"] = ["a = 1\n", "b = 2"]
    assert parse(dump([split])).cells[0].source == "a = 1\nb = 2"


def test_a_byte_order_mark_is_no_obstacle() -> None:
    assert len(parse(b"\xef\xbb\xbf" + dump([cell("1")])).cells) == 1


@pytest.mark.parametrize("what", ["missing", "folder", "link"])
def test_what_is_no_file_is_unreadable(tmp_path: Path, what: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(__file__)
    with pytest.raises(Unreadable, match=r"cannot be opened|folder|link"):
        read_notebook(tmp_path / what)


def steps(all_cells: list[dict[str, Any]]) -> list[tuple[str, str]]:
    plan = make_plan(parse(dump(all_cells)), release())
    return [(s.role, s.exercise_id or s.source.splitlines()[0]) for s in plan.steps]


SETUP = "setup", "from twophase.lab import NotYet, check, hint, solution, progress"


def test_cells_run_in_the_order_of_the_submission_with_the_released_setup_first() -> None:
    made = [
        answer_cell("softmax", "x"),
        cell("", kind="markdown"),
        cell("one = 1"),
        answer_cell("bytes", "y"),
    ]
    assert steps(made) == [
        SETUP,
        ("answer", f"{TOPIC}-softmax"),
        ("own", "one = 1"),
        ("answer", f"{TOPIC}-bytes"),
    ]


def test_the_released_setup_runs_in_its_own_place_too_where_a_cell_above_may_undo_it() -> None:
    """Many begin a notebook with `%reset -f`: names that the setup gave are gone then."""
    answer = answer_cell("bytes", "y")
    assert steps([setup_cell(), answer]) == [SETUP, ("answer", f"{TOPIC}-bytes")]
    assert steps([cell("%reset -f"), setup_cell(), answer])[1:3] == [("own", "%reset -f"), SETUP]
    changed = steps([cell("%reset -f"), setup_cell("mine"), answer])
    assert changed[1:4] == [("own", "%reset -f"), SETUP, ("own", "mine")]


@pytest.mark.parametrize(
    "call",
    [
        'check("{}")',
        'print(check("{}"))',
        'points = check("{}")',
        '%time check("{}")',
        'assert check("{}")',
        'progress(); check("{}")',
        'import twophase.lab\ntwophase.lab.check("{}")',
        'for i in ["{}"]:\n    check(i)',
    ],
)
def test_an_exercise_is_asked_where_its_check_is_called_last_however_it_is_called(
    call: str,
) -> None:
    """A second try below the check, checked there: what is seen right is right."""
    second = [cell("def softmax(x): return 2"), cell(call.format(f"{TOPIC}-softmax"))]
    made = [*cells({"softmax": "def softmax(x): return 1"}), *second]
    plan = make_plan(parse(dump(made)), release())
    assert second[0]["source"] in [s.source for s in plan.above(f"{TOPIC}-softmax")]


@pytest.mark.parametrize(
    "text", ['# check("{}")', 'hint("{}")', 'check(""); solution("{}")', '"{}"']
)
def test_an_id_that_no_check_is_called_with_asks_nothing(text: str) -> None:
    second = [cell("def softmax(x): return 2"), cell(text.format(f"{TOPIC}-softmax"))]
    made = [*cells({"softmax": "def softmax(x): return 1"}), *second]
    plan = make_plan(parse(dump(made)), release())
    assert second[0]["source"] not in [s.source for s in plan.above(f"{TOPIC}-softmax")]


@pytest.mark.parametrize(
    "line",
    [
        "%matplotlib inline",
        "files = !ls",
        "took = %time 1 + 1",
        "if 0:\n    !pip install x",
        "torch.arange?",
        "x = (\n    5\n    % 3)",
    ],
)
def test_an_answer_without_its_id_is_found_in_a_cell_that_only_ipython_can_read(line: str) -> None:
    made = [cell(f"{line}\ndef softmax(x): return 1")]
    plan = make_plan(parse(dump(made)), release())
    assert f"{TOPIC}-softmax" not in plan.missing
    assert [s.exercise_id for s in plan.steps][1:] == [f"{TOPIC}-softmax"]


def test_lines_that_end_as_windows_writes_them_change_no_locked_cell() -> None:
    asked = replace(release(), locked={f"{TOPIC}-setup": "import math\nx = 1"})
    for source in ("import math\r\nx = 1", ["import math\r\n", "x = 1"]):
        made = [setup_cell() | {"source": source}, answer_cell("bytes", "y")]
        assert "locked_cell_changed" not in {
            f.name for f in make_plan(parse(dump(made)), asked).flags
        }


def test_an_exercise_by_itself_has_the_setup_and_its_own_cell() -> None:
    setup, *others = cells(dict(RIGHT))
    plan = make_plan(parse(dump([setup, cell("one = 1"), *others])), release())
    assert [s.role for s in plan.alone(f"{TOPIC}-bytes", with_own=False)] == ["setup", "answer"]
    assert [s.role for s in plan.alone(f"{TOPIC}-bytes", with_own=True)] == [
        "setup",
        "own",
        "answer",
    ]


def test_an_open_cell_of_the_release_is_the_submissions_own_only_once_it_was_changed() -> None:
    released = replace(release(), given=frozenset({"one = 1"}))
    for source, role in (("one = 1\n", "given"), ("one = 2", "own"), ("one = 1; two = 2", "own")):
        setup, *answers = cells(dict(RIGHT))
        plan = make_plan(parse(dump([setup, cell(source), *answers])), released)
        assert plan.steps[1].role == role
        others = plan.alone(f"{TOPIC}-bytes", with_own=False)
        assert [s.role for s in others] == [
            "setup",
            *(["given"] if role == "given" else []),
            "answer",
        ]


MANY = 200_000
ODD_BYTES = {
    "brackets": b"[" * MANY,
    "brackets that close": b"[" * MANY + b"]" * MANY,
    "dicts in dicts": b'{"cells":' * MANY,
    "one number of many digits": b"7" * MANY,
    "a number of many digits in a cell": (
        b'{"cells":[{"cell_type":"code","source":' + b"7" * MANY + b"}]}"
    ),
    "an exponent of many digits": b'{"cells":' + b"1e" + b"9" * MANY + b"}",
    "a fraction of many digits": b'{"cells":0.' + b"3" * MANY + b"}",
    "a string that never ends": b'"' * MANY + b"a",
    "half of surrogate pairs": b'{"cells":["' + b"\\ud800" * 1000 + b'"]}',
    "bytes that are no text": b"\xff" * MANY,
    "zeros": bytes(MANY),
    "the same key again and again": b"{" + b'"cells":[],' * 10_000 + b'"cells":7}',
    "more cells than anybody writes": b'{"cells":[' + b"{}," * 3000 + b"{}]}",
    "more worksheets": b'{"worksheets":[' + b'{"cells":[{}]},' * 3000 + b"{}]}",
    "NaN": b'{"cells":[{"source":NaN,"metadata":{"nbgrader":{"points":Infinity}}}]}',
}


@pytest.mark.parametrize("name", ODD_BYTES)
def test_json_made_to_break_a_reader_is_read_or_unreadable(name: str) -> None:
    _parses_or_unreadable(ODD_BYTES[name])


def test_of_two_values_of_one_key_the_last_counts_as_in_nbformat() -> None:
    data = b'{"nbformat":4,"nbformat_minor":5,"metadata":{},"cells":[],' + dump([cell("1")])[1:]
    assert [c.source for c in parse(data).cells] == [
        c.source for c in nbformat.reads(data.decode(), 4).cells
    ]


def test_lines_of_a_source_that_are_no_text_are_left_out() -> None:
    made = [cell(""), cell(""), cell("")]
    made[0]["source"] = ["a = 1\n", None, 7, ["x"], "b = 2"]
    made[1]["source"] = {"a": 1}
    made[2]["source"] = 3
    assert [c.source for c in parse(dump(made)).cells] == ["a = 1\nb = 2", "", ""]


@pytest.mark.parametrize("version", [None, "4", 2, 5, -1, 1e308, [], 10**30])
def test_the_number_of_the_format_has_no_say_where_the_cells_are_plain(version: Any) -> None:
    tree = json.loads(dump([cell("a = 1")])) | {"nbformat": version, "nbformat_minor": version}
    assert [c.source for c in parse(json.dumps(tree).encode()).cells] == ["a = 1"]


def test_a_flag_names_its_place_briefly() -> None:
    made = answer_cell("bytes", "def check(): pass")
    made["metadata"]["nbgrader"]["grade_id"] = "x" * 10**6
    flags = make_plan(parse(dump([made])), release()).flags
    assert {f.name for f in flags} >= {"defines_check"}
    assert all(len(f.where) <= 80 for f in flags)


@pytest.mark.parametrize(
    ("beside", "may"),
    [
        ("def helper(n):\n    return n + 1", False),
        ("import math\nSIZE = 3", False),
        ("class Cache:\n    size = 0\n    def add(self, n): self.size += n", False),
        ("print(1)", True),
        ("np.random.seed(0)", True),
        ("def other(): np.random.seed(0)", True),
        ("def other():\n    global n_tokens", True),
        ("def both(n): return 0", True),
        ("np.float64.x = 3", True),
        ("from mine import *\nfor both in (1, 2): pass", True),
        ("%matplotlib inline", True),
        ("def broken(", True),
    ],
)
def test_only_what_may_have_harmed_an_answer_makes_it_looked_at_again(
    beside: str, may: bool
) -> None:
    made = cells({"softmax": "def softmax(x):\n    return both(x)"})
    made.insert(1, cell(beside))
    assert make_plan(parse(dump(made)), release()).may_suffer(f"{TOPIC}-softmax") == may


@pytest.mark.parametrize("given", [True, False])
def test_a_cell_as_it_was_released_harms_no_answer_however_it_is_cut(given: bool) -> None:
    """A clock, say, which names an answer: it is asked in the middle of that cell, too."""
    clock = f'sizes = list((1, 2))\ntimed("{TOPIC}-bytes", both)\nprint(sizes)'
    made = cells({"softmax": "def softmax(x):\n    return x"})
    made.insert(1, cell(clock))
    released = replace(release(), given=frozenset([clock] if given else []))
    plan = make_plan(parse(dump(made)), released)
    pieces = [s for s in plan.steps if s.source.strip() in clock]
    assert len(pieces) > 1
    assert {s.role for s in pieces} == {"given" if given else "own"}
    assert plan.may_suffer(f"{TOPIC}-softmax") != given


def test_what_stands_below_the_check_is_in_no_look_at_an_answer() -> None:
    above, below = cell("half = 2"), cell("def both(x): pass")
    made = [above, *cells({"softmax": "def softmax(x):\n    return both(x)"}), below]
    plan = make_plan(parse(dump(made)), release())
    looks = [plan.above(f"{TOPIC}-softmax"), plan.alone(f"{TOPIC}-softmax", with_own=True)]
    assert [[s.source for s in look if s.role == "own"] for look in looks] == [["half = 2"]] * 2
    assert not plan.may_suffer(f"{TOPIC}-bytes")


@pytest.mark.parametrize(
    "source",
    [
        ('check("a")' + " " * 40) * 40 + "x",
        "\n" * 1_000_000 + "x",
        " " * 1_000_000 + "x",
        "x = [" + "1, " * 1_000_000 + "]",
    ],
    ids=["checks", "lines", "blanks", "list"],
)
def test_no_cell_is_made_so_that_reading_it_takes_hours(source: str) -> None:
    made = [cell(source), *cells({"softmax": "def softmax(x):\n    return both(x)"})]
    plan = make_plan(parse(dump(made)), release())
    assert [s.source for s in plan.steps if s.role == "own"] == [source]
    assert plan.may_suffer(f"{TOPIC}-softmax")


@pytest.mark.parametrize(
    ("source", "is_run"),
    [
        ('check("a"); check("b-c")\n\n  check(\'d\') ;\n', False),
        ('check("a") check("b")', False),
        ('x = 1\ncheck("a")', True),
        ('check("a" + "b")', True),
    ],
)
def test_a_cell_of_checks_and_nothing_else_is_not_run(source: str, is_run: bool) -> None:
    plan = make_plan(parse(dump([*cells({}), cell(source)])), release())
    assert (source in [s.source for s in plan.steps]) == is_run


@pytest.mark.parametrize(
    ("more", "is_run"),
    [
        ("x = 1", False),
        ("def progress():\n    global x\n    x = 2", True),
        ("from mine import progress", True),
        ("progress = print", True),
    ],
)
def test_progress_alone_is_not_run_unless_the_submission_has_one_of_its_own(
    more: str, is_run: bool
) -> None:
    plan = make_plan(parse(dump([*cells({}), cell(more), cell("progress()\n")])), release())
    assert ("progress()\n" in [s.source for s in plan.steps]) == is_run


def topic_of(name: str, *sources: str) -> str:
    return Source().topic_of(parse(dump([cell(s) for s in sources])), name)


@pytest.mark.parametrize(
    "name",
    [
        "04_latency_throughput.ipynb",
        "04_latency_throughput (1).ipynb",
        "04_latency_throughput-2.ipynb",
        "04_latency_throughput-Copy1.ipynb",
        "Copy of 04_latency_throughput.ipynb",
        "Kopie von 04_latency_throughput (2).ipynb",
        "ann_104_04_latency_throughput.ipynb",
    ],
)
def test_a_notebook_without_metadata_is_of_the_topic_whose_name_is_in_its_own(name: str) -> None:
    assert topic_of(name, "x = 1") == "latency_throughput"


def test_a_notebook_without_metadata_is_of_the_topic_whose_checks_it_calls() -> None:
    calls = 'check("kv_cache-max_batch")', "def f(): pass\n  check( 'kv_cache-rope' ) ; 1"
    assert topic_of("homework.ipynb", *calls) == "kv_cache"
    assert topic_of("homework.ipynb", *calls, 'check("mine-odd")') == "kv_cache"
    assert topic_of("Copy of 04_latency_throughput.ipynb", *calls) == "kv_cache"
    assert topic_of("04_latency_throughput.ipynb", *calls) == "kv_cache"
    of_two = *calls, 'check("paging-manager")'
    assert topic_of("Copy of 04_latency_throughput.ipynb", *of_two) == "latency_throughput"


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("homework.ipynb", "x = 1"),
        ("homework.ipynb", '# check("kv_cache-max_batch")'),
        ("Copy of 03_kv_cache and 04_latency_throughput.ipynb", "x = 1"),
        ("104_latency_throughput.ipynb", "x = 1"),
        ("Copy of latency_throughput.ipynb", "x = 1"),
    ],
)
def test_between_two_topics_or_none_nothing_is_guessed(name: str, source: str) -> None:
    with pytest.raises(Unreadable, match="no cell of it belongs to an exercise"):
        topic_of(name, source)
