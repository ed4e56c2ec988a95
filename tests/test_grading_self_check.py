"""`twophase self-check` tells a student, before handing in, what the grader would find on the
public cases, and why."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from gradescope_tools import KV, ROOT, with_answers
from grading_run_tools import all_end
from hostile.worker import LIMITS, server

from twophase.cli.main import main
from twophase.grading.run import pool, self_check

MAX_BATCH = "kv_cache-max_batch"
SIGNATURE = "def max_batch(memory_bytes, weight_bytes, kv_bytes_per_token, n_tokens):\n"
RIGHT = (
    f"{SIGNATURE}    return max(0, (memory_bytes - weight_bytes) // (kv_bytes_per_token *"
    " n_tokens))"
)


@pytest.fixture(autouse=True)
def one_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tests of this file share a fork server: it takes seconds to start."""
    monkeypatch.setattr(pool, "make_server", server)


def notebook(folder: Path, answers: dict[str, str], first: str = "") -> Path:
    path = folder / "03_kv_cache.ipynb"
    path.write_bytes(with_answers(KV, answers, first))
    return path


def verdict(path: Path) -> dict[str, Any]:
    """What is said about max_batch, and the remarks."""
    record = self_check.check(path, LIMITS)
    said = next(q for q in record["questions"] if q["id"] == MAX_BATCH)
    others = {q["id"]: q["status"] for q in record["questions"] if q["id"] != MAX_BATCH}
    assert set(others.values()) == {"right"}, others
    return said | {"remarks": self_check.remarks(path.read_bytes(), record), "record": record}


def test_only_public_cases_are_judged_and_they_are_those_of_the_check_cells(tmp_path: Path) -> None:
    from twophase.checks import registry

    said = verdict(notebook(tmp_path, {}))
    public = [c.name for c in registry.load(MAX_BATCH).make_cases(0) if c.public]
    assert [c["case"] for c in said["cases"]] == public
    assert all(c["public"] for q in said["record"]["questions"] for c in q["cases"])


def test_an_answer_that_fails_only_on_hidden_cases_is_right_here_which_is_why_it_says_so(
    tmp_path: Path,
) -> None:
    from twophase.checks import registry

    known = {c.args for c in registry.load(MAX_BATCH).make_cases(0) if c.public}
    by_heart = (
        f"{RIGHT}\nright, KNOWN = max_batch, {known!r}\ndef max_batch(*a):\n    return right(*a) if"
        " a in KNOWN else -1"
    )
    assert verdict(notebook(tmp_path, {MAX_BATCH: by_heart}))["status"] == "right"


@pytest.mark.parametrize(
    ("answer", "later", "status"),
    [
        (f"PAGE = SIZE\n{RIGHT}", "SIZE = 16", "missing"),
        (f"{SIGNATURE}    return held(memory_bytes)", "def held(x): return x", "wrong"),
        ("# at the end", RIGHT, "missing"),
    ],
    ids=["of a cell", "of an answer", "the answer"],
)
def test_a_name_that_a_cell_below_the_check_defines_is_told_with_its_place(
    answer: str, later: str, status: str, tmp_path: Path
) -> None:
    book = json.loads(with_answers(KV, {MAX_BATCH: answer}))
    book["cells"].append({"cell_type": "code", "source": later, "metadata": {}})
    path = tmp_path / "03_kv_cache.ipynb"
    path.write_text(json.dumps(book))
    said = verdict(path)
    assert said["status"] == status
    [name] = self_check.defined(later)
    place = f"Cell {len(book['cells'])} defines {name}, below the check: move it above"
    assert place in said["message"]


def test_a_name_that_no_cell_defines_was_only_in_the_kernels_memory(tmp_path: Path) -> None:
    said = verdict(notebook(tmp_path, {MAX_BATCH: f"{SIGNATURE}    return gone(memory_bytes)"}))
    assert said["status"] == "wrong"
    assert "No cell defines gone: it is misspelt, or it was only in your kernel" in said["message"]


def test_a_name_that_a_cell_above_took_away_is_not_said_to_be_nowhere(tmp_path: Path) -> None:
    answer = f"rate = 1\ndel rate\n{SIGNATURE}    return rate"
    said = verdict(notebook(tmp_path, {MAX_BATCH: answer}))
    assert "rate is defined above the check, and was not there when it was used" in said["message"]


def with_first(folder: Path, first: str, answer: str) -> Path:
    """The solved notebook with a cell above all others, and another answer to max_batch."""
    book = json.loads(with_answers(KV, {MAX_BATCH: answer}))
    path = folder / "03_kv_cache.ipynb"
    cell = {"cell_type": "code", "source": first, "metadata": {}}
    path.write_text(json.dumps(book | {"cells": [cell, *book["cells"]]}))
    return path


ONLY_THE_NOTEBOOK = (
    "Only the notebook is run, with the course's libraries and no file beside it: put what you need"
    " of utils into a cell."
)
DOUBLE = f"{SIGNATURE}    return double(memory_bytes)"


@pytest.mark.parametrize(
    ("first", "answer"),
    [
        ("pass", "from utils import max_batch"),
        ("pass", f"import utils.more\n{DOUBLE}"),
        ("pass", f"{SIGNATURE}    from utils import double\n    return double(memory_bytes)"),
        ("from utils import double", DOUBLE),
        ("from utils import *", DOUBLE),
        ("import utils as u\ndef double(x): return u.double(x)", DOUBLE),
        ("from utils import double", f"SIZE = double(8)\n{RIGHT}"),
        (
            "%%writefile utils.py\ndef double(x): return 2 * x",
            f"from utils import double\n{DOUBLE}",
        ),
    ],
)
def test_the_message_of_an_answer_that_lacks_a_module_says_that_only_the_notebook_is_run(
    tmp_path: Path, first: str, answer: str
) -> None:
    (tmp_path / "utils.py").write_text("def double(x): return 2 * x")
    said = verdict(with_first(tmp_path, first, answer))
    assert said["status"] != "right"
    assert said["message"].endswith(
        f"ModuleNotFoundError: No module named 'utils'. {ONLY_THE_NOTEBOOK}"
    )
    assert ("Cell 1 stopped with ModuleNotFoundError" in said["message"]) == ("import" in first)
    if first.startswith("%%writefile"):
        [remark] = said["remarks"]
        assert remark.startswith(f"{MAX_BATCH} needs the module utils")
        assert "cell 1 would write it" in remark
    else:
        assert said["remarks"] == []


def test_a_module_that_is_not_there_is_no_reason_where_another_thing_is_wrong(
    tmp_path: Path,
) -> None:
    wrong = f"{SIGNATURE}    return memory_bytes // (kv_bytes_per_token * n_tokens)"
    said = verdict(with_first(tmp_path, "from utils import double", wrong))
    assert "Only the notebook" not in said["message"]


def test_a_cell_that_writes_a_file_is_told_that_it_cannot(tmp_path: Path) -> None:
    said = verdict(notebook(tmp_path, {MAX_BATCH: f"open('notes.txt', 'w')\n{RIGHT}"}))
    assert said["status"] != "right"
    assert "no file beside the notebook" in said["message"]
    assert said["remarks"] == []


@pytest.mark.parametrize(
    "above",
    [
        "from multiprocessing.pool import ThreadPool\nPOOL = ThreadPool(2)",
        "import subprocess\nsubprocess.run(['true'])",
        "import urllib.request\nurllib.request.urlopen('http://localhost:1/')",
        "import torch\ntorch.save(torch.zeros(1), 'weights.pt')",
    ],
    ids=["locks", "a process", "the network", "a file of torch's"],
)
def test_what_is_refused_above_an_answer_is_told_with_what_to_do(
    tmp_path: Path, above: str
) -> None:
    said = verdict(notebook(tmp_path, {MAX_BATCH: f"{above}\n{RIGHT}"}))
    assert said["status"] == "missing"
    assert "no network and no other process" in said["message"]
    assert said["remarks"] == []


def test_an_answer_far_below_a_stub_is_told_with_its_place(tmp_path: Path) -> None:
    book = json.loads(with_answers(KV, {MAX_BATCH: f"{SIGNATURE}    raise NotYet('{MAX_BATCH}')"}))
    cell = {"cell_type": "code", "source": RIGHT, "metadata": {}}
    path = tmp_path / "03_kv_cache.ipynb"
    path.write_text(json.dumps(book | {"cells": [*book["cells"], cell]}))
    said = verdict(path)
    assert said["status"] == "not_yet"
    [remark] = said["remarks"]
    assert f"cell {len(book['cells']) + 1} defines max_batch too late" in remark


def test_an_answer_above_a_stub_is_told_what_the_stub_does_to_it(tmp_path: Path) -> None:
    book = json.loads(with_answers(KV, {MAX_BATCH: f"{SIGNATURE}    raise NotYet('{MAX_BATCH}')"}))
    cell = {"cell_type": "code", "source": RIGHT, "metadata": {}}
    path = tmp_path / "03_kv_cache.ipynb"
    path.write_text(json.dumps(book | {"cells": [cell, *book["cells"]]}))
    [remark] = verdict(path)["remarks"]
    assert "cell 1 defines max_batch above it, so that the stub takes its place" in remark


def test_a_stub_without_its_id_is_not_told_that_it_comes_too_late(tmp_path: Path) -> None:
    book = json.loads(with_answers(KV, {MAX_BATCH: f"{SIGNATURE}    raise NotYet('{MAX_BATCH}')"}))
    for cell in book["cells"]:
        cell["metadata"] = {}
    path = tmp_path / "03_kv_cache.ipynb"
    path.write_text(json.dumps(book))
    said = verdict(path)
    assert (said["status"], said["remarks"]) == ("not_yet", [])


def _has_begun(home: Path) -> bool:
    """Whether there are the folder of what all are forked from, and in its judge's that of the
    worker."""
    with contextlib.suppress(FileNotFoundError):  # another went while we looked
        return bool(list(home.glob("*/twophase-*")) and list(home.glob("*/*/twophase-*")))
    return False


def test_a_self_check_that_was_killed_leaves_no_folder(tmp_path: Path) -> None:
    """The processes that it started end, and take its folder along."""
    home = tmp_path / "temporary"
    home.mkdir()
    path = notebook(tmp_path, {MAX_BATCH: "while True: pass"})
    process = subprocess.Popen(
        [sys.executable, "-m", "twophase.cli.main", "self-check", str(path)],
        env=os.environ | {"TMPDIR": str(home)},
        stdout=subprocess.DEVNULL,
    )
    while not _has_begun(home):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert all_end(str(home))
    assert list(home.iterdir()) == []


def test_cells_that_ran_out_of_order_and_another_kernel_are_told(tmp_path: Path) -> None:
    book = json.loads(KV.read_bytes())
    code = [c for c in book["cells"] if c["cell_type"] == "code"]
    for n, cell in enumerate(code):
        cell["execution_count"] = n + 1
    book["metadata"]["kernelspec"] = {
        "name": "my-conda",
        "display_name": "mine",
        "language": "python",
    }
    straight = self_check.remarks(json.dumps(book).encode(), {"questions": []})
    assert len(straight) == 1
    assert "'my-conda'" in straight[0]
    code[1]["execution_count"] = 40
    places = [n for n, c in enumerate(book["cells"], 1) if c["cell_type"] == "code"]
    out_of_order = self_check.remarks(json.dumps(book).encode(), {"questions": []})
    assert f"cell {places[1]} had been run after cell {places[2]}" in out_of_order[0]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("%matplotlib inline\nimport numpy as np, os.path\nx = 1", {"np", "os", "x"}),
        ("def f(): y = 1\nclass C: z = 2\nfor i in []: k = i", {"f", "C", "i", "k"}),
        ("from a import b as c", {"c"}),
        ("def (", set()),
    ],
)
def test_the_names_of_a_cell_are_those_of_its_top_level(source: str, names: set[str]) -> None:
    assert self_check.defined(source) == names


def run(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str, str]:
    monkeypatch.setenv("COLUMNS", "220")
    monkeypatch.setenv("NO_COLOR", "1")
    with pytest.raises(SystemExit) as left:
        main(["self-check", *arguments])
    said = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return left.value.code, said.out, said.err


def test_all_right_is_exit_0_and_says_that_the_official_grade_uses_more_cases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run([str(notebook(tmp_path, {}))], capsys, monkeypatch)
    assert code == 0, out
    assert (
        "10 of 10 exercises are right on the public cases. The official grade uses more cases than"
        " these." in out
    )
    assert "Confined by processes" in out


def test_each_state_of_an_answer_is_told_in_words_and_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {
        MAX_BATCH: f"{SIGNATURE}    return memory_bytes // (kv_bytes_per_token * n_tokens)",
        "kv_cache-kv_bytes": "import os\nos._exit(0)",
        "kv_cache-budget": 'def longest_context(*a, **k):\n    raise NotYet("kv_cache-budget")',
        "kv_cache-step_bytes": "print('\x1b[2J')\nstep = 1",
        "kv_cache-setup": "import math",
    }
    code, out, _ = run([str(notebook(tmp_path, answers))], capsys, monkeypatch)
    assert code == 1
    lines = {line.split("│")[1].strip(): line for line in out.splitlines() if line.count("│") == 4}
    assert "not right" in lines["How many sequences fit"]
    assert "subtract them before you divide" in out
    assert "breaks in a fresh run" in lines["What a token costs"]
    assert "not written yet" in lines["The longest context in a budget"]
    assert "missing" in lines["Predict what a decode step moves"]
    assert "right on the public cases" in lines["RoPE under a cache"]
    assert "Noticed: kv_cache-setup: A locked cell was changed" in out
    assert "\x1b[2J" not in out


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("none.ipynb", None, "there is no file none.ipynb"),
        ("broken.ipynb", b"{", "broken.ipynb cannot be graded: its JSON cannot be read: it ends"),
        ("empty.ipynb", b"", "it is empty"),
        ("other.ipynb", b'{"cells": [], "nbformat": 4}', "no cell of it belongs to an exercise"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_and_exit_2(
    name: str,
    data: bytes | None,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if data is not None:
        Path(name).write_bytes(data)
    code, _, err = run([name], capsys, monkeypatch)
    assert code == 2
    assert says in err
    assert "Traceback" not in err


def test_the_graders_own_fault_is_exit_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **named: Any) -> dict[str, Any]:
        return {"status": "internal", "message": "The grader failed here (OSError): not graded."}

    monkeypatch.setattr(self_check, "check", broken)
    code, _, err = run([str(ROOT / "exercises" / "03_kv_cache.ipynb")], capsys, monkeypatch)
    assert code == 3
    assert "The grader failed here" in err


def test_an_answer_under_timeit_is_told_that_its_names_stay_there(tmp_path: Path) -> None:
    said = verdict(notebook(tmp_path, {MAX_BATCH: f"%%timeit -n 1 -r 1\n{RIGHT}"}))
    assert said["status"] == "missing"
    assert "defined under %%timeit, which keeps names to itself" in said["message"]
