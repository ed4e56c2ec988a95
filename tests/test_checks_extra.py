"""An instructor's folders: exercises that join the course without a fork, and every mistake in them
as one sentence."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from patience import PATIENCE_S

import twophase
from twophase.checks import extra, prove, registry
from twophase.checks.exercise import Exercise
from twophase.checks.judge import Bench
from twophase.checks.registry import Catalog
from twophase.grading.release import release
from twophase.grading.release.release import Source

EXAMPLE = Path(twophase.__path__[0]) / "grading" / "release" / "checks_example"
CHECKS, VARIANTS = EXAMPLE / "checks", EXAMPLE / "variants"
BOTH = Source(None, (CHECKS,), VARIANTS)
Edit = Callable[[Path], None]


def test_the_exercises_of_a_folder_follow_the_courses_own() -> None:
    found = Catalog([extra.read(CHECKS)])
    assert found.ids("kv_cache") == [*registry.ids("kv_cache"), "kv_cache-send_s"]
    assert found.load("kv_cache-send_s").title == "Send a cache to another machine"
    assert "kv_cache-send_s" not in registry.ids("kv_cache")  # the course itself stays as it is


def test_a_held_back_sibling_stands_where_the_public_exercise_stood() -> None:
    public = registry.ids("kv_cache")
    found = Catalog(variants=extra.read(VARIANTS))
    assert found.ids("kv_cache") == [
        "kv_cache-fewest_chips" if i == "kv_cache-max_batch" else i for i in public
    ]
    assert found.public_ids("kv_cache") == public


@pytest.mark.parametrize(
    "exercise", [BOTH.catalog().load(i) for f in BOTH.catalog().folders() for i in f.ids()]
)
def test_the_examples_checks_hold_what_the_courses_do(exercise: Exercise) -> None:
    assert prove.everything(exercise) == ""


def test_folders_leave_the_import_path_alone_and_work_in_a_process_started_anew() -> None:
    before = list(sys.path)
    here = BOTH.load("kv_cache")
    assert sys.path == before
    code = (
        "import pickle, sys; source = pickle.loads(bytes.fromhex(sys.argv[1])); source.validate(); "
        "r = source.load('kv_cache'); print(r.digest, *r.exercises)"
    )
    command = [sys.executable, "-c", code, pickle.dumps(BOTH).hex()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout.split() == [here.digest, *here.exercises], done.stderr[-2000:]


def test_a_release_asks_what_the_folders_add_and_hold_back_and_locks_the_same_cells() -> None:
    plain, both = release.Source().load("kv_cache"), BOTH.load("kv_cache")
    assert list(both.exercises) == BOTH.catalog().ids("kv_cache")
    assert (both.locked, both.first) == (plain.locked, plain.first)
    assert Source(checks=(CHECKS,)).load("two_phases") == release.Source().load("two_phases")


def test_the_exercises_of_a_folder_may_share_modules(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    (folder / "units.py").write_text("BITS = 8\n")
    text("kv_cache/send_s.py", "import random\n", "import random\n\nfrom ..units import BITS\n")(
        folder
    )
    text(
        "kv_cache/send_s.py",
        "return 8 * kv_bytes_per_token * n_tokens",
        "return BITS * kv_bytes_per_token * n_tokens",
    )(folder)
    Source(checks=(folder,)).validate()
    assert folder / "units.py" in extra.read(folder).modules()


def copied(tmp_path: Path, which: Path = CHECKS) -> Path:
    return Path(
        shutil.copytree(which, tmp_path / "mine", ignore=shutil.ignore_patterns("__pycache__"))
    )


def test_a_releases_digest_covers_modules_and_notebooks_of_the_folder(tmp_path: Path) -> None:
    def digest(name: str, edit: Edit = lambda folder: None) -> str:
        (tmp_path / name).mkdir()
        folder = copied(tmp_path / name)
        edit(folder)
        return Source(checks=(folder,)).load("kv_cache").digest

    plain = digest("a")
    assert digest("b") == plain
    assert digest("c", text("kv_cache/send_s.py", "8 * kv", "8.0 * kv")) != plain
    assert (
        digest("d", text("solutions/03_kv_cache.ipynb", "Latency and protocol", "All else"))
        != plain
    )
    assert digest("e", lambda folder: (folder / "kv_cache/_data.py").write_text("")) != plain  # type: ignore[arg-type,return-value]


def new_topic(folder: Path, chapter: str = "CHAPTER = 21\n") -> Path:
    """The example's exercise as one of a topic that the course does not have."""
    made = copied(folder)
    (made / "kv_cache").rename(made / "links")
    (made / "solutions/03_kv_cache.ipynb").rename(made / "solutions/21_links.ipynb")
    for path in [*made.rglob("*.py"), *made.rglob("*.ipynb")]:
        path.write_text(path.read_text("utf-8").replace("kv_cache-", "links-"), "utf-8")
    (made / "links/__init__.py").write_text(f'{chapter}ORDER = ("send_s",)\n')
    return made


def test_a_folder_may_bring_a_topic_of_its_own(tmp_path: Path) -> None:
    source = Source(checks=(new_topic(tmp_path),))
    source.validate()
    assert source.topics() == [*registry.topics(), "links"]
    assert source.catalog().stem("links") == "21_links"
    assert (list(source.load("links").exercises), source.load("links").first) == (
        ["links-send_s"],
        ("links-setup",),
    )


@pytest.mark.parametrize(
    ("chapter", "says"),
    [
        ("", "a new one needs a number: CHAPTER = 21"),
        ("CHAPTER = 3\n", "chapter 3 is kv_cache"),
        ("CHAPTER = 0\n", "from 1 to 99"),
        ("CHAPTER = '21'\n", "from 1 to 99"),
    ],
)
def test_a_new_topic_needs_a_chapter_that_is_free(tmp_path: Path, chapter: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Source(checks=(new_topic(tmp_path, chapter),)).validate()


def text(file: str, old: str, new: str) -> Edit:
    """An edit of one file of a folder."""

    def edit(folder: Path) -> None:
        path = folder / file
        before = path.read_text("utf-8")
        assert old in before
        path.write_text(before.replace(old, new), "utf-8")

    return edit


def without_cell(grade_id: str) -> Edit:
    def edit(folder: Path) -> None:
        path = folder / "solutions/03_kv_cache.ipynb"
        nb = json.loads(path.read_text("utf-8"))
        kept = [
            c for c in nb["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") != grade_id
        ]
        path.write_text(json.dumps(nb | {"cells": kept}), "utf-8")

    return edit


def module(source: str) -> Edit:
    return lambda folder: (folder / "kv_cache/send_s.py").write_text(source) and None  # type: ignore[func-returns-value]


def clash(folder: Path) -> None:
    (folder / "kv_cache/send_s.py").rename(folder / "kv_cache/max_batch.py")
    text("kv_cache/__init__.py", '"send_s"', '"max_batch"')(folder)


INIT, MODULE, NOTEBOOK = "kv_cache/__init__.py", "kv_cache/send_s.py", "solutions/03_kv_cache.ipynb"
MISTAKES: dict[str, tuple[Edit, str, str]] = {
    "no ORDER": (text(INIT, "ORDER", "ODER"), INIT, "must define ORDER"),
    "ORDER is a string": (text(INIT, '("send_s",)', '"send_s"'), INIT, "must define ORDER"),
    "no init": (lambda f: (f / INIT).unlink(), INIT, "is missing; it lists the topic's exercises"),
    "no module": (
        text(INIT, '"send_s",', '"send_s", "other"'),
        "kv_cache/other.py",
        "is missing, and ORDER",
    ),
    "a module not in ORDER": (
        lambda f: shutil.copy(f / MODULE, f / "kv_cache/b.py") and None,
        "b.py",
        "is not in ORDER",
    ),  # type: ignore[func-returns-value]
    "an id that differs": (
        text(MODULE, '"kv_cache-send_s"', '"kv_cache-sends"'),
        MODULE,
        "should be 'kv_cache-send_s'",
    ),
    "a clash": (clash, INIT, "there is an exercise 'kv_cache-max_batch' already"),
    "no Python": (
        text(MODULE, "def reference(", "def reference(("),
        MODULE,
        "line 14: this is no Python",
    ),
    "raises when imported": (module("1 / 0\n"), MODULE, "cannot be imported: ZeroDivisionError"),
    "ends when imported": (
        module("raise SystemExit(3)\n"),
        MODULE,
        "cannot be imported: SystemExit",
    ),
    "no EXERCISE": (module("x = 1\n"), MODULE, "defines no EXERCISE"),
    "a variant": (
        text(INIT, "ORDER", "REPLACES = {'send_s': 'max_batch'}\nORDER"),
        INIT,
        "a folder of their own",
    ),
    "no notebook": (lambda f: (f / NOTEBOOK).unlink(), NOTEBOOK, "is missing"),
    "broken notebook": (
        lambda f: (f / NOTEBOOK).write_text("{") and None,
        NOTEBOOK,
        "no notebook of format 4",
    ),  # type: ignore[func-returns-value]
    "no answer cell": (
        without_cell("kv_cache-send_s"),
        NOTEBOOK,
        "has no answer cell for kv_cache-send_s",
    ),
    "no check cell": (without_cell("kv_cache-send_s-check"), NOTEBOOK, "must stand its check cell"),
    "other points": (
        text(NOTEBOOK, '"points": 2', '"points": 3'),
        NOTEBOOK,
        "says 3 points, and its module 2",
    ),
    "a wrong reference": (
        text(
            MODULE,
            "return 8 * kv_bytes_per_token * n_tokens /",
            "return 8 * kv_bytes_per_tokens * n_tokens /",
        ),
        MODULE,
        "the reference of kv_cache-send_s fails on its own cases",
    ),
    "no cases": (
        text(MODULE, "    return [\n", "    return []\n    return [\n"),
        MODULE,
        "has no case;",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_with_the_path_before_anything_is_graded(
    tmp_path: Path, mistake: str
) -> None:
    edit, path, says = MISTAKES[mistake]
    folder = copied(tmp_path)
    edit(folder)
    with pytest.raises(ValueError, match=says) as caught:
        Source(checks=(folder,)).validate()
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (text(INIT, '"max_batch"', '"no_such"'), "must take the place of an exercise of kv_cache"),
        (text(INIT, "REPLACES = ", "OTHER = "), "must take the place of an exercise of kv_cache"),
        (text(INIT, '{"fewest_chips":', '{"fewest":'), "which is not in ORDER"),
        (text(INIT, '{"fewest_chips": "max_batch"}', '"max_batch"'), "REPLACES is a dict"),
    ],
)
def test_a_variant_must_say_whose_place_it_takes(tmp_path: Path, edit: Edit, says: str) -> None:
    folder = copied(tmp_path, VARIANTS)
    edit(folder)
    with pytest.raises(ValueError, match=says) as caught:
        Source(variants=folder).validate()
    assert INIT in str(caught.value)


@pytest.mark.parametrize("place", ["nowhere", "empty", "a_file"])
def test_what_is_no_such_folder_is_one_sentence(tmp_path: Path, place: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a_file").write_text("")
    with pytest.raises(ValueError, match=place):
        Source(checks=(tmp_path / place,)).validate()


def test_two_folders_with_the_same_exercise_clash(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is an exercise 'kv_cache-send_s' already"):
        Source(checks=(CHECKS, copied(tmp_path))).catalog()


def test_proving_finds_what_is_wrong_with_a_check() -> None:
    good = extra.read(CHECKS).load("kv_cache-send_s")
    first, second, *_ = good.misconceptions
    unnamed = replace(first, slug="twin")
    cases = {
        "accepts the misconception": replace(
            good, misconceptions=(replace(first, answer=good.reference), second)
        ),
        "is rejected without its name": replace(
            good, misconceptions=(*good.misconceptions, unnamed)
        ),
        "has no misconceptions": replace(good, misconceptions=()),
        "two misconceptions of one name": replace(good, misconceptions=(first, first)),
        "needs three hints": replace(good, hints=("", "", "")),
        "has no public case": replace(
            good, cases=lambda rng: [replace(c, public=False) for c in good.cases(rng)]
        ),
    }
    for says, exercise in cases.items():
        assert says in prove.everything(exercise)
    assert "no case tells" in prove.separated(Bench(cases["is rejected without its name"]))
    assert "rejects mine" in prove.right(Bench(good), {"send_s": first.answer}, "mine")
    assert "should be “not written yet”" in prove.stub(Bench(good), {"send_s": lambda *a: 0.0})
