"""The notebook's functions: what check, hint, solution and progress say, and that they write
nothing outside my/."""

from __future__ import annotations

import copy
import html
import pickle
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
import torch
from exercise_tools import namespace_of, right_answers
from nbclient import NotebookClient
from notebook_tools import small_solution
from patience import PATIENCE_S

from twophase.checks import registry
from twophase.checks.exercise import Case
from twophase.lab import check, checking, course, hint, progress, record, showing, solution, timed
from twophase.lab.library import used
from twophase.lab.shown import CheckFailed, LabError, Later, Points
from twophase.protocol import NotYet

ID = "kv_cache-max_batch"
MAX_BATCH = "twophase.theory.kv_cache.max_batch"


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The user namespace of a notebook that was just opened, in a folder that is nobody's."""
    user_ns: dict[str, Any] = {}
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(user_ns=user_ns))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(record, "_here", [])
    monkeypatch.setattr(checking, "touched", [])
    monkeypatch.setattr(showing, "_given", {})
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    return user_ns


@pytest.fixture
def my(names: dict[str, Any], tmp_path: Path) -> Path:
    """The record of a learner's folder that we are in."""
    file = tmp_path / record.STATE_FOLDER / record.FILE_NAME
    file.parent.mkdir()
    file.touch()
    return file


def right(memory_bytes: int, weight_bytes: int, kv_bytes_per_token: int, n_tokens: int) -> int:
    return max(0, (memory_bytes - weight_bytes) // (kv_bytes_per_token * n_tokens))


def no_weights(memory_bytes: int, weight_bytes: int, kv_bytes_per_token: int, n_tokens: int) -> int:
    return memory_bytes // (kv_bytes_per_token * n_tokens)


def stub(*args: int) -> int:
    raise NotYet(ID)


def failure(exercise_id: str = ID) -> CheckFailed:
    with pytest.raises(CheckFailed) as caught:
        check(exercise_id)
    return caught.value


def test_a_right_answer_gives_its_points_and_a_green_card(
    names: dict[str, Any],
) -> None:
    names["max_batch"] = right
    points = check(ID)
    assert (points, repr(points)) == (2.0, "Right. 2 of 2 points")
    assert "Right." in points._repr_html_()
    assert "2 of 2 points" in points._repr_html_()


def test_every_right_answer_of_the_tests_gets_its_points(names: dict[str, Any]) -> None:
    for path in right_answers(ID):
        names.update(namespace_of(path))
        assert check(ID) == registry.load(ID).points


def test_a_wrong_answer_raises_a_few_lines_with_exercise_reason_and_next_step(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in registry.load(ID).misconceptions:
        names["max_batch"] = wrong.answer
        error = failure()
        lines = error.lines
        assert len(lines) <= 6
        assert error._render_traceback_() == lines
        with monkeypatch.context() as at_a_person:
            at_a_person.setenv("JPY_SESSION_NAME", "/my/03_kv_cache.ipynb")
            assert error._render_traceback_() == lines[:1] == [f"{ID}: not right yet."]
        assert wrong.says in lines
        assert f'hint("{ID}")' in lines[-1]
        assert capsys.readouterr().out == "\n".join(lines) + "\n"


@pytest.fixture
def cards(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the notebook displays, as HTML."""
    seen: list[str] = []
    monkeypatch.setattr("IPython.display.display", lambda card: seen.append(card._repr_html_()))
    return seen


def test_a_wrong_answers_card_folds_each_hint_into_the_one_before_and_the_answer_into_the_last(
    names: dict[str, Any], cards: list[str]
) -> None:
    names["max_batch"] = no_weights
    failure()
    said = html.unescape(cards[-1])
    exercise = registry.load(ID)
    parts = [
        part
        for n, text in enumerate(exercise.hints, start=1)
        for part in (f"<summary>Hint {n} of 3</summary>", text)
    ]
    answer = course.author_source(ID)
    assert answer is not None
    at = [said.index(part) for part in [*parts, "The author's answer</summary>", answer]]
    assert at == sorted(at)
    assert said.endswith("</details>" * 4 + "</div>")
    assert said.index("max_batch(") < at[0]  # the call that shows it stands before the folds


def test_before_an_attempt_the_card_offers_hints_and_no_answer(
    names: dict[str, Any], cards: list[str]
) -> None:
    names["max_batch"] = stub
    failure()
    assert cards[-1].count("<summary>Hint") == 3
    assert "author's answer" not in html.unescape(cards[-1])


def test_where_the_model_solutions_are_not_at_hand_the_card_ends_with_the_last_hint(
    names: dict[str, Any], cards: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(course, "COURSE", tmp_path)
    names["max_batch"] = no_weights
    failure()
    assert cards[-1].endswith("</details>" * 3 + "</div>")


def test_a_card_shows_markup_in_an_answers_values_as_text(
    names: dict[str, Any], cards: list[str]
) -> None:
    names["max_batch"] = lambda *args: "<img src=x onerror=alert(1)>"
    failure()
    assert "<img" not in cards[-1]
    assert "<img" in html.unescape(cards[-1])


def test_an_unnamed_mistake_shows_the_smallest_failing_public_case(names: dict[str, Any]) -> None:
    names["max_batch"] = lambda *args: 17
    assert "tiny" in str(failure())


def test_a_stub_is_called_not_written_yet_and_is_no_attempt(
    names: dict[str, Any], my: Path
) -> None:
    names["max_batch"] = stub
    assert "not written yet" in str(failure())
    assert my.read_bytes() == b""


def test_a_name_that_is_not_defined_is_said_so(names: dict[str, Any]) -> None:
    assert "max_batch is not defined" in str(failure())


def test_an_answer_that_exits_is_wrong_and_ends_nothing(names: dict[str, Any]) -> None:
    names["max_batch"] = lambda *args: sys.exit(0)
    assert "SystemExit" in str(failure())


def test_a_kernel_in_which_the_checks_own_answer_fails_is_told_in_a_sentence(
    names: dict[str, Any],
) -> None:
    torch.set_default_device("meta")
    try:
        with pytest.raises(LabError, match=r"was not judged: .* restart the kernel") as caught:
            check("kv_cache-cached_attention")
    finally:
        torch.set_default_device(None)
    assert "AnswerError" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.fixture
def float64() -> Iterator[None]:
    """A kernel in which a cell has made float64 the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    left = torch.get_default_dtype()
    torch.set_default_dtype(before)
    assert left == torch.float64, "the kernel keeps what its cell has set"


@pytest.mark.parametrize(
    ("exercise_id", "how"),
    [
        ("kv_cache-cached_attention", "sdpa"),
        ("grouped_query_attention-one_read", "fold"),
        ("mixture_of_experts-route", ""),
        ("arithmetic_intensity-flash", "log_sum_exp"),
        ("sharding-heads", "slices"),
        ("continuous_batching-ragged", "sdpa"),
    ],
)
def test_what_is_right_is_so_whatever_torchs_default_dtype_is(
    names: dict[str, Any], float64: None, exercise_id: str, how: str
) -> None:
    path = next(p for p in right_answers(exercise_id) if how in p.stem)
    names |= namespace_of(path)
    assert check(exercise_id) == registry.load(exercise_id).points


def test_an_answer_has_the_notebooks_default_dtype_and_the_check_the_usual_one(
    names: dict[str, Any], float64: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def made(rng: random.Random) -> list[Case]:
        seen.append(("cases", torch.get_default_dtype()))
        return [Case("one", (lambda: seen.append(("callback", torch.get_default_dtype())),))]

    def answer(call: Callable[[], None]) -> int:
        seen.append(("answer", torch.get_default_dtype()))
        call()
        seen.append(("answer", torch.get_default_dtype()))
        return 1

    exercise = replace(registry.load(ID), cases=made, reference=lambda call: 1, misconceptions=())
    monkeypatch.setattr(registry, "load", lambda exercise_id: exercise)
    names["max_batch"] = answer
    assert check(ID) == exercise.points
    answers = [("answer", torch.float64), ("callback", torch.float32), ("answer", torch.float64)]
    assert seen == [("cases", torch.float32), *answers, *answers]


@pytest.mark.parametrize("shown", [Points(2.0, 3), Later(0.0, 4)])
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))]
)
def test_points_can_be_copied(shown: Points | Later, copied: Callable[[Any], Any]) -> None:
    again = copied(shown)
    assert type(again) is type(shown)
    assert (again, again.out_of) == (shown, shown.out_of)


@pytest.mark.parametrize("shown", [Points(2.0, 3), Later(0.0, 4)])
def test_a_mean_of_points_is_a_plain_number(shown: Points | Later) -> None:
    for found in (statistics.mean([shown, shown]), statistics.median([shown, shown])):
        assert type(found) is float
        assert found == shown


def test_an_unknown_id_gets_the_nearest_known_one(names: dict[str, Any]) -> None:
    for call in (check, hint, solution):
        with pytest.raises(LabError, match=f"did you mean '{ID}'"):
            call("kv_cache-max_bach")


def test_outside_a_notebook_check_says_where_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    with pytest.raises(LabError, match="make lab"):
        check(ID)


def test_what_an_answer_writes_to_stderr_is_shown_and_goes_to_stdout(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def noisy(*args: int) -> int:
        print("noise", file=sys.stderr)
        return right(*args)

    names["max_batch"] = noisy
    assert check(ID) == 2
    out, err = capsys.readouterr()
    assert err == ""
    assert "noise" in out


def test_hints_go_one_step_further_at_each_call_and_stay_at_the_third(
    names: dict[str, Any],
) -> None:
    shown = [repr(hint(ID)) for _ in range(4)]
    for text, wanted in zip(
        shown, [*registry.load(ID).hints, registry.load(ID).hints[2]], strict=True
    ):
        assert wanted in text


@pytest.fixture
def author(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "solutions").mkdir()
    nbformat.write(small_solution(), tmp_path / "solutions" / "03_kv_cache.ipynb")
    monkeypatch.setattr(course, "COURSE", tmp_path)


def test_the_solution_is_shown_after_an_attempt_and_not_before(
    names: dict[str, Any], author: None
) -> None:
    assert "Try first" in repr(solution(ID))
    names["max_batch"] = stub
    failure()
    assert "Try first" in repr(solution(ID))
    names["max_batch"] = no_weights
    failure()
    source = solution(ID).source
    assert "return max(0, free" in source
    assert "SOLUTION" not in source


def test_the_solution_can_be_had_by_giving_up(names: dict[str, Any], author: None) -> None:
    assert "return max(0, free" in solution(ID, give_up=True).source


def test_without_a_learners_folder_nothing_is_written(
    names: dict[str, Any], tmp_path: Path
) -> None:
    names["max_batch"] = right
    check(ID)
    hint(ID)
    progress()
    assert list(tmp_path.iterdir()) == []


def test_an_attempt_is_kept_in_the_learners_folder_and_survives_the_process(
    names: dict[str, Any], my: Path
) -> None:
    names["max_batch"] = no_weights
    failure()
    assert record.standings(record.read(my))[ID].state == "tried"
    names["max_batch"] = right
    check(ID)
    names["max_batch"] = no_weights
    failure()
    assert record.standings(record.read(my))[ID] == record.Standing("done", 2.0)
    assert record._here == []


def test_a_torn_last_line_is_dropped_and_spoils_no_later_one(
    names: dict[str, Any], my: Path
) -> None:
    record.write("check", ID, status="wrong")
    my.write_bytes(my.read_bytes() + b'{"event": "check", "id": "kv_ca')
    record.write("check", ID, status="right", points=2)
    my.write_bytes(my.read_bytes() + b'\xff{"id": 3}\n[1]\nnull\n')
    assert [e["status"] for e in record.read()] == ["wrong", "right"]


def test_two_notebooks_may_write_at_once(my: Path) -> None:
    code = (
        f"from twophase.lab import record\nfor i in range(300): record.write('hint', '{ID}',"
        " number=i)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code], cwd=my.parent) for _ in range(2)]
    assert [w.wait(PATIENCE_S) for w in writers] == [0, 0]
    assert sorted(e["number"] for e in record.read()) == sorted([*range(300)] * 2)


def test_progress_counts_done_tried_and_open(names: dict[str, Any]) -> None:
    names["max_batch"] = no_weights
    failure()
    assert f"{ID}" in repr(progress())
    assert next(r for r in progress().exercises if r[0] == ID)[1] == "tried"
    names["max_batch"] = right
    check(ID)
    table = progress()
    minutes = sum(e.minutes for e in registry.load_topic("kv_cache")) - registry.load(ID).minutes
    row = next(r for r in table.chapters if r[0] == "03_kv_cache")
    assert row[1:] == (f"1 of {len(registry.ids('kv_cache'))}", row[2], f"{minutes}")
    assert row[2].startswith("2 of ")
    assert "<table>" in table._repr_html_()


def test_progress_knows_the_notebook_by_its_file_name_before_any_check(
    names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert progress().topic is None
    monkeypatch.setenv("JPY_SESSION_NAME", "/somewhere/my/03_kv_cache.ipynb")
    assert [row[0] for row in progress().exercises] == registry.ids("kv_cache")


USES: dict[str, str] = {
    "the function itself": "from twophase.theory.kv_cache import max_batch as f",
    "by its name": "from twophase.theory.kv_cache import max_batch as g\ndef f(*a): return g(*a)",
    "by its module": "import twophase.theory.kv_cache as kv\ndef f(*a): return kv.max_batch(*a)",
    "by its full name": (
        "import twophase.theory.kv_cache\ndef f(*a): return twophase.theory.kv_cache.max_batch(*a)"
    ),
    "imported inside": (
        "def f(*a):\n    from twophase.theory.kv_cache import max_batch as g\n    return g(*a)"
    ),
    "through a helper": (
        "from twophase.theory import kv_cache\ndef h(*a): return kv_cache.max_batch(*a)\ndef f(*a):"
        " return h(*a)"
    ),
    "in a method": (
        "from twophase.theory import kv_cache\nclass f:\n    def m(self): return kv_cache.max_batch"
    ),
    "in a lambda inside": (
        "from twophase.theory import kv_cache\ndef f(*a): return (lambda: kv_cache.max_batch(*a))()"
    ),
    "as a default": (
        "from twophase.theory.kv_cache import max_batch\ndef f(*a, g=max_batch): return g(*a)"
    ),
}


@pytest.mark.parametrize("how", USES)
def test_leaning_on_the_library_is_seen(how: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(USES[how], names)
    assert used([names["f"]]) == [MAX_BATCH]


OWN: tuple[Callable[..., Any], ...] = (right, no_weights, stub)


@pytest.mark.parametrize("answer", OWN)
def test_an_answer_of_ones_own_is_not_suspected(answer: Callable[..., Any]) -> None:
    import twophase.theory.kv_cache  # noqa: F401

    assert used([answer]) == []


ODD = {
    "a dict with attributes": (
        "class D(dict):\n    def __getattr__(self, name): return self[name]\nodd = D(size=2)"
    ),
    "a class that raises": (
        "class M(type):\n    def __getattr__(cls, name): raise ValueError\n"
        "class odd(metaclass=M): pass"
    ),
    "something that is no longer there": "import weakref\nodd = weakref.proxy({1})",
    "an array by an odd name": (
        "import numpy as np, types\nodd = types.SimpleNamespace(serial=np.ones(2))"
    ),
}


@pytest.mark.parametrize("made", ODD.values(), ids=ODD)
def test_a_right_answer_beside_what_raises_when_it_is_looked_at_has_its_points(
    names: dict[str, Any], made: str
) -> None:
    body = "    size = lambda: odd\n    return max(0, (m - w) // (k * n))"
    exec(f"{made}\ndef max_batch(m, w, k, n):\n{body}", names)
    assert check(ID) == 2.0


def test_the_notebooks_own_tools_are_no_part_of_the_library() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("from twophase.lab import NotYet, check\ndef f(*a): check('x'); raise NotYet('x')", names)
    assert used([names["f"]]) == []


def test_in_the_official_worker_all_four_say_nothing_and_bring_no_checks() -> None:
    code = (
        "import sys; from twophase.lab import NotYet, check, hint, solution, progress\n"
        "assert hint('b').text == hint('c').text == progress().text\n"
        "assert solution('c').source == solution('c', give_up=True).source == ''\n"
        "assert check('a') + check('b') and check('a').out_of\n"
        "assert not [m for m in sys.modules if m.startswith('twophase.checks')]\n"
        "assert [m for m in sys.modules if m.startswith('twophase.lab.')] == ['twophase.lab.shown']"
    )
    subprocess.run(
        [sys.executable, "-c", code], env={"TWOPHASE_WORKER": "1"}, check=True, timeout=PATIENCE_S
    )


def test_a_notebook_shows_the_verdict_in_a_few_lines_and_nothing_on_stderr(tmp_path: Path) -> None:
    nb = nbformat.v4.new_notebook()
    sources = (
        "from twophase.lab import NotYet, check, hint, solution, progress",
        f'def max_batch(*args):\n    raise NotYet("{ID}")',
        "max_batch()",
        f'check("{ID}")',
        (
            "def max_batch(memory, weights, per_token, tokens):\n    return memory // (per_token *"
            " tokens)"
        ),
        f'check("{ID}")',
        (
            "def max_batch(m, w, k, n):\n    import warnings; warnings.warn('x'); return max(0, (m"
            " - w) // (k * n))"
        ),
        f'check("{ID}")',
        f'solution("{ID}", 1); hint("{ID}"); progress()',
    )
    nb.cells = [nbformat.v4.new_code_cell(s) for s in sources]
    NotebookClient(
        nb, allow_errors=True, timeout=PATIENCE_S, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [o for c in nb.cells for o in c.outputs]
    assert not [o for o in outputs if o.get("name") == "stderr"]
    errors = [o for o in outputs if o.output_type == "error"]
    assert [e.ename for e in errors] == ["NotYet", "CheckFailed", "CheckFailed"]
    assert all(len(e.traceback) <= 6 and "File " not in "".join(e.traceback) for e in errors)
    assert [o.output_type for o in nb.cells[5].outputs] == ["display_data", "error"]
    assert "<summary>Hint 1 of 3" in nb.cells[5].outputs[0].data["text/html"]
    verdict = nb.cells[7].outputs[-1]
    assert verdict.data["text/plain"] == "Right. 2 of 2 points"
    assert list(tmp_path.iterdir()) == []


def test_a_prediction_is_on_record_before_the_first_run_that_is_timed(my: Path) -> None:
    seen: list[list[str]] = []

    def run() -> None:
        seen.append([e["event"] for e in record.read()])

    made = timed(ID, lambda: {"one": 3, "four": 12}, {"one": lambda: run, "four": lambda: run})
    assert seen[0] == ["prediction"]
    assert made.column("your prediction") == [1, 4]
    events = record.read()
    assert [e["event"] for e in events] == ["prediction", "timing"]
    assert events[0]["ratios"] == {"one": 1, "four": 4}
    assert events[1]["ratios"]["one"] == 1
    assert ID not in record.standings(events)  # a clock gives no points


def test_nothing_is_timed_before_the_answer_is_written(
    my: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def never() -> Callable[[], object]:
        raise AssertionError("timed without a prediction")

    assert timed(ID, lambda: {"one": stub()}, {"one": never}) is None
    assert capsys.readouterr().out.startswith(f"{ID}: predict first.")
    assert record.read() == []


@pytest.mark.parametrize("amount", [0, -1, float("nan"), None, "3", True])
def test_a_prediction_that_is_no_positive_number_is_refused_in_a_sentence(
    amount: Any, my: Path
) -> None:
    with pytest.raises(LabError, match="must be a positive number"):
        timed(ID, lambda: {"one": amount}, {"one": lambda: lambda: None})
    assert record.read() == []


def test_names_of_prediction_and_clock_must_agree(my: Path) -> None:
    with pytest.raises(LabError, match="give both the same names"):
        timed(ID, lambda: {"one": 1}, {"two": lambda: lambda: None})
