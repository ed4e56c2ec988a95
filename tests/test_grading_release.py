"""What students get: it works by itself, gives nothing away, and is what the class is graded
against."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from exercise_tools import right_answers
from hostile.worker import LIMITS, zygote
from patience import PATIENCE_S
from test_checks_extra import CHECKS, VARIANTS, new_topic, text, without_cell

from twophase.checks import manifest, registry
from twophase.cli.main import main
from twophase.grading.errors import GraderFault, Unreadable
from twophase.grading.files.notebook import parse
from twophase.grading.judge.benches import Benches
from twophase.grading.judge.one_submission import SubmissionJudge
from twophase.grading.release import handout, leaks, placing
from twophase.grading.release.handout import Handout
from twophase.grading.release.release import Source, course_root
from twophase.grading.results.grade import Grade

ROOT = Path(__file__).resolve().parents[1]
HELD = "kv_cache-fewest_chips"
NOTEBOOK = "exercises/03_kv_cache.ipynb"
FOLDERS = Source(None, (CHECKS,), VARIANTS)
LINES = (VARIANTS / "kv_cache/fewest_chips.py").read_text("utf-8").splitlines()
# a line of a held-back check, whatever the formatter makes of it: nowhere else is anything like it
HELD_BACK = max((x.strip() for x in LINES if x.strip().startswith("return ")), key=len)


@pytest.fixture(scope="module")
def made() -> Handout:
    """A release of one topic with an exercise of the instructor's own and a held-back one."""
    return handout.make(ROOT, FOLDERS, ["kv_cache"])


@pytest.fixture(scope="module")
def out(made: Handout, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, written."""
    place = tmp_path_factory.mktemp("handed") / "release"
    with placing.written(place, made) as folder:
        placing.move(folder, place)
    return place


def twophase(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code of a command, and what it said."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    said = "".join(capsys.readouterr())
    assert "Traceback" not in said
    return int(ended.value.code or 0), " ".join(said.split())


class TestWhatIsInIt:
    def test_without_folders_the_notebooks_are_those_of_exercises_byte_for_byte(self) -> None:
        plain = handout.make(ROOT, Source(), registry.topics())
        for path in sorted((ROOT / "exercises").glob("*.ipynb")):
            assert plain.files[f"exercises/{path.name}"] == path.read_bytes()

    def test_the_same_input_gives_the_same_files(self, made: Handout) -> None:
        assert handout.make(ROOT, FOLDERS, ["kv_cache"]).files == made.files

    def test_it_has_the_package_the_notebooks_and_what_installs_them_and_nothing_of_the_instructors(
        self, made: Handout
    ) -> None:
        beside = {n for n in made.files if not n.startswith("lib/")}
        assert beside == {NOTEBOOK, "Makefile", "README.md", "release.json", *leaks.AS_THEY_ARE}
        package = {n.removeprefix("lib/twophase/") for n in made.files if n.startswith("lib/")}
        assert {
            "checks/kv_cache/max_batch.py",
            "checks/added/1/kv_cache/send_s.py",
            "models/corpus.txt",
            "py.typed",
        } <= package
        assert {
            f"models/checkpoints/{p.name}"
            for p in (ROOT / "lib/twophase/models/checkpoints").iterdir()
        } <= package
        unwanted = (
            "fewest_chips",
            "_example",
            "gradescope/files",
            "course/example",
            "__pycache__",
            "egg-info",
            "checks/two_phases",
            ".md",
        )
        assert [n for n in made.files if any(part in n for part in unwanted)] == ["README.md"]

    def test_no_line_of_a_solution_or_of_a_held_back_check_is_in_it(self, made: Handout) -> None:
        solutions = [
            ROOT / "solutions/03_kv_cache.ipynb",
            *(f / "solutions/03_kv_cache.ipynb" for f in (CHECKS, VARIANTS)),
        ]
        given = nbformat.reads(made.files[NOTEBOOK].decode(), as_version=4)
        shown = [line.strip() for c in given.cells for line in c.source.splitlines()]
        inside = [line for path in solutions for line in marked_lines(path)]
        assert len(inside) > 70
        tasks = "\n".join(c.source for c in given.cells if c.cell_type == "markdown")
        assert [line for line in inside if line in shown and line not in tasks] == []
        hidden = [
            line.strip()
            for line in (VARIANTS / "kv_cache/fewest_chips.py").read_text().splitlines()
        ]
        hidden += marked_lines(VARIANTS / "solutions/03_kv_cache.ipynb")
        package = "\n".join(
            p.read_text() for p in (ROOT / "lib/twophase").rglob("*.py") if "_example" not in str(p)
        )
        own = [line for line in hidden if len(line) > 12 and line not in package]
        assert len(own) > 30
        everything = "\n".join(
            [*shown, *(d.decode("utf-8", "replace") for d in made.files.values())]
        )
        assert [line for line in own if line in everything] == []

    def test_its_makefile_installs_as_the_courses_does_and_opens_the_lab(self, out: Path) -> None:
        # --no-print-directory: these tests may be run by a make themselves
        done = subprocess.run(
            ["make", "--no-print-directory", "-n", "lab"],
            cwd=out,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        assert "pip install --quiet -r requirements.txt -c constraints.txt" in done.stdout
        assert done.stdout.splitlines()[-1] == ".venv/bin/twophase lab"

    def test_the_manifest_is_read_back_as_it_was_written(self, made: Handout, out: Path) -> None:
        assert manifest.read(out) == made.manifest
        assert made.manifest.held_back[HELD].replaces == "kv_cache-max_batch"


def marked_lines(path: Path) -> list[str]:
    """The lines of model solutions that say something: not brackets, `return x` or `pass` alone."""
    found, within = [], False
    for cell in nbformat.read(path, as_version=4).cells:
        for line in cell.source.splitlines():
            within = "BEGIN SOLUTION" in line or (within and "END SOLUTION" not in line)
            if within and "SOLUTION" not in line and len(line.strip()) > 8:
                found.append(line.strip())
    return found


def test_a_topic_of_the_instructors_own_is_released_like_the_courses(tmp_path: Path) -> None:
    source = Source(checks=(new_topic(tmp_path),))
    made = handout.make(ROOT, source, ["links"])
    place = tmp_path / "release"
    with placing.written(place, made) as folder:
        placing.move(folder, place)
    assert [p.name for p in (place / "exercises").iterdir()] == ["21_links.ipynb"]
    assert list(Source(place, source.checks).load("links").exercises) == ["links-send_s"]
    code = (
        "from twophase.checks import registry; from twophase.cli.main import main; assert"
        " registry.topics() == ['links'] and registry.stem('links') == '21_links'; main(['next'])"
    )
    env = os.environ | {"PYTHONPATH": str(place / "lib")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert "Next: my/21_links.ipynb, about 6 minutes" in done.stdout, done.stderr[-2000:]


class TestWhatIsFound:
    """The release is searched before it is there: each kind of leak, put in, is told."""

    def told(self, files: dict[str, bytes], secret: bytes = b"") -> list[str]:
        notebooks = [ROOT / "solutions/03_kv_cache.ipynb", VARIANTS / "solutions/03_kv_cache.ipynb"]
        return list(leaks.found(files, FOLDERS.catalog(), notebooks, secret))

    def test_a_release_as_made_has_none(self, made: Handout) -> None:
        assert self.told(dict(made.files), b"a secret that is nowhere") == []

    @pytest.mark.parametrize(
        ("name", "data", "says"),
        [
            (
                "README.md",
                b"Hint: free = memory_bytes - weight_bytes\n",
                "a line of a model solution",
            ),
            (
                "notes.txt",
                b"chips, left_over = divmod(everything, chip_bytes)",
                "a line of a model solution",
            ),
            ("notes.txt", f"as in {HELD_BACK}".encode(), "a held-back check"),
            ("notes.txt", f"as in {HELD_BACK[:-1]}".encode(), ""),  # no line, but a part of one
            (
                "lib/a.py",
                (VARIANTS / "kv_cache/fewest_chips.py").read_bytes(),
                "is the held-back file",
            ),
            ("lib/a.bin", b"\0\0correct horse battery staple\0", "the course's secret"),
            ("lib/a.bin", b"correct horse battery staple".hex().encode(), "the course's secret"),
            (
                "solutions/03_kv_cache.ipynb",
                b'{"cells": []}',
                "in a folder that students do not get",
            ),
            (".git/config", b"", "in a folder that students do not get"),
        ],
    )
    def test_what_does_not_belong_is_told(
        self, made: Handout, name: str, data: bytes, says: str
    ) -> None:
        found = self.told({**made.files, name: data}, b"correct horse battery staple")
        assert bool(found) == bool(says)
        assert all(name in sentence and says in sentence for sentence in found)

    @pytest.mark.parametrize(
        ("key", "value", "says"),
        [
            (
                "outputs",
                [{"output_type": "stream", "name": "stdout", "text": "6"}],
                "the output of a run",
            ),
            ("execution_count", 3, "the output of a run"),
            ("source", "### BEGIN SOLUTION\nx = 1\n### END SOLUTION", "a model solution's marks"),
            (
                "source",
                ["def f():\n", "    chips, left_over = divmod(everything, chip_bytes)\n"],
                "a line of a model",
            ),
        ],
    )
    def test_a_notebook_that_gives_something_away_is_told(
        self, made: Handout, key: str, value: object, says: str
    ) -> None:
        tree = json.loads(made.files[NOTEBOOK])
        next(c for c in tree["cells"] if c["cell_type"] == "code")[key] = value
        found = self.told({**made.files, NOTEBOOK: json.dumps(tree).encode()})
        assert any(says in sentence for sentence in found), found


STUDENT = """
import sys
from twophase.cli.main import main
from twophase.checks import registry
from IPython.core.interactiveshell import InteractiveShell

def run(*arguments):
    try:
        main(list(arguments))
    except SystemExit as ended:
        assert not ended.code, (arguments, ended.code)

def show(source):
    result = shell.run_cell(source)
    assert result.error_in_exec is None, source
    return result.result

assert registry.__file__.startswith(sys.argv[1]), registry.__file__
run("lab", "--no-open")
run("next")
shell = InteractiveShell.instance()
show("import numpy as np; from twophase.lab import NotYet, check, hint, solution, progress")
show("import os; os.chdir('my')")
show("def send_s(a, b, c): return 8 * a * b / c")
assert show("check('kv_cache-send_s')") == 2.0
show(open(sys.argv[4]).read())
assert show("check('kv_cache-kv_bytes')") == 2.0  # the first sitting is done
show("os.chdir('..')")
run("next")
show("os.chdir('my')")
show("def fewest_chips(*a): raise NotYet('kv_cache-fewest_chips')")
assert repr(show("check('kv_cache-fewest_chips')")) == "0.0"
(row,) = [r for r in show("progress()").exercises if r[0] == "kv_cache-fewest_chips"]
assert "| open" in " | ".join(row)
show("def fewest_chips(*a): return 1")
later = show("check('kv_cache-fewest_chips')")
assert "Judged after you hand in" in later._repr_html_()
print(show("hint('kv_cache-fewest_chips')"), show("solution('kv_cache-fewest_chips')"), sep="\\n")
print(show("solution('kv_cache-send_s')"))
for row in show("progress()").exercises:
    print(*row)
assert len(show("progress()").chapters) == 2
os_ = show("os.chdir('..')")
run("next")
run("progress")
run("update")
from pathlib import Path
from twophase.grading.release.release import Source
checks, variants = map(Path, sys.argv[2:4])
Source(None, (checks,), variants).validate()  # the grader may run from a release, too
Source(None, (), variants).validate()
try:
    Source().validate()
except ValueError as e:
    print(e)
failed = shell.run_cell("check('kv_cache-fewest_chip')").error_in_exec
print(failed)
"""


def test_it_works_by_itself_for_a_student(out: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(out, tmp_path / "mine"))
    env = {k: v for k, v in os.environ.items() if k != "TWOPHASE_COURSE"}
    env |= {
        "PYTHONPATH": str(place / "lib"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "COLUMNS": "200",
        "NO_COLOR": "1",
    }
    first = str(right_answers("kv_cache-kv_bytes")[0])
    command = [sys.executable, "-c", STUDENT, str(place), str(CHECKS), str(VARIANTS), first]
    done = subprocess.run(
        command, cwd=place, env=env, capture_output=True, text=True, timeout=PATIENCE_S
    )
    said = done.stdout
    assert done.returncode == 0, said[-3000:] + done.stderr[-3000:]
    assert "copied 03_kv_cache.ipynb" in said
    assert (
        f"{HELD}  How many chips a batch needs, 8 min" in said
    )  # the next sitting has it, until it is written
    assert said.count(f"{HELD}  How many") == 1
    assert f"{HELD}: It is not written yet. Its check is not in this release" in said
    assert f"{HELD}: Your answer is there." in said
    assert f"No hints: {HELD} is judged after you hand in" in said
    assert "Not here: " in said
    assert "Not in this release: The model solutions are with who teaches the course" in said
    assert f"{HELD} judged later 0 of 2 8" in said
    assert "kv_cache-send_s done 2 of 2 6" in said
    assert "03_kv_cache.ipynb: up to date" in said
    assert "was made with --variants; give the same folder here" in said
    assert f"did you mean '{HELD}'?" in said  # a typo is still an error
    assert sorted(p.name for p in place.iterdir()) == sorted(
        [*(p.name for p in out.iterdir()), "my"]
    )


def test_nbgrader_takes_a_held_back_check_cell_for_no_points_yet_and_for_no_error(
    out: Path,
) -> None:
    from nbgrader.utils import determine_grade

    from twophase.lab.shown import Later

    cell = next(
        c for c in nbformat.read(out / NOTEBOOK, as_version=4).cells if c.id == f"{HELD}-check"
    )
    cell.outputs = [
        nbformat.v4.new_output("stream", text=f"{HELD}: ..."),
        shown(repr(Later(0.0, 2))),
    ]
    assert determine_grade(cell) == (0.0, 2)


def shown(value: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_output("execute_result", data={"text/plain": value}, execution_count=1)


ANSWERS = {
    "kv_cache-send_s": "def send_s(n, t, r):\n    return n * t / (r / 8)\n",
    HELD: (
        "def fewest_chips(c, w, k, n, B):\n    total = w + k * n * B\n    return (total + c - 1)"
        " // c\n"
    ),
}
ROUNDED_DOWN = "def fewest_chips(c, w, k, n, B):\n    return (w + k * n * B) // c\n"


def handed_in(out: Path, **other: str) -> bytes:
    """The released notebook with right answers, but for those given."""
    nb = nbformat.read(out / NOTEBOOK, as_version=4)
    for cell in nb.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            name = cell.metadata.nbgrader.grade_id
            cell.source = (
                other.get(name.partition("-")[2])
                or ANSWERS.get(name)
                or right_answers(name)[0].read_text()
            )
    return nbformat.writes(nb).encode()


def graded(out: Path, data: bytes) -> Grade:
    source = Source(out, (CHECKS,), VARIANTS)
    notebook = parse(data)
    released = source.load(source.topic_of(notebook, "ann.ipynb"))
    return SubmissionJudge(zygote(), released, Benches(), LIMITS, "seed", notebook).grade()


class TestGradingAgainstIt:
    def test_a_solved_notebook_gets_every_point_the_held_back_ones_too(self, out: Path) -> None:
        grade = graded(out, handed_in(out))
        wrong = [
            (q.verdict.exercise_id, q.verdict.message)
            for q in grade.questions
            if not q.verdict.right
        ]
        assert wrong == []
        assert [q.verdict.exercise_id for q in grade.questions] == list(
            manifest.read(out).exercises["kv_cache"]
        )
        assert sum(q.verdict.points for q in grade.questions) == 43
        assert grade.flags == []

    def test_a_wrong_answer_to_a_held_back_exercise_is_named_and_costs_its_own_points_only(
        self, out: Path
    ) -> None:
        grade = graded(out, handed_in(out, fewest_chips=ROUNDED_DOWN))
        by_id = {q.verdict.exercise_id: q.verdict for q in grade.questions}
        assert (by_id[HELD].status, by_id[HELD].misconception) == ("wrong", "rounded_down")
        assert sum(v.points for v in by_id.values()) == 41

    def test_the_untouched_notebook_gets_nothing_and_every_exercise_is_not_written_yet(
        self, out: Path
    ) -> None:
        grade = graded(out, (out / NOTEBOOK).read_bytes())
        assert {(q.verdict.status, q.verdict.points) for q in grade.questions} == {("not_yet", 0.0)}

    def test_it_is_the_same_assignment_as_without_the_release_folder(self, out: Path) -> None:
        there, here = Source(out, (CHECKS,), VARIANTS).load("kv_cache"), FOLDERS.load("kv_cache")
        assert (list(there.exercises), there.locked, there.first) == (
            list(here.exercises),
            here.locked,
            here.first,
        )

    def test_other_folders_than_it_was_made_with_are_refused(
        self, out: Path, tmp_path: Path
    ) -> None:
        other = Path(shutil.copytree(VARIANTS, tmp_path / "held"))
        text("kv_cache/fewest_chips.py", "minutes=8", "minutes=9")(other)
        for source, says in (
            (Source(out, (CHECKS,)), "was made with --variants; give the same folder"),
            (Source(out, (), VARIANTS), "was made with --checks; give the same folder"),
            (Source(out, (CHECKS,), other), "was made with another --variants"),
        ):
            with pytest.raises(ValueError, match=says):
                source.validate()
        Source(out, (CHECKS,), VARIANTS).validate()

    def test_a_released_notebook_that_was_changed_and_a_folder_that_is_no_release_are_refused(
        self, out: Path, tmp_path: Path
    ) -> None:
        edited = Path(
            shutil.copytree(out, tmp_path / "edited", ignore=shutil.ignore_patterns("lib"))
        )
        text(NOTEBOOK, "How many chips", "How few chips")(edited)
        with pytest.raises(GraderFault, match="not as it was released"):
            Source(edited, (CHECKS,), VARIANTS).load("kv_cache")
        with pytest.raises(ValueError, match=r"is no release: it has no release\.json"):
            Source(tmp_path).validate()

    def test_a_notebook_of_a_topic_that_was_not_released_cannot_be_graded_against_it(
        self, out: Path
    ) -> None:
        other = parse((ROOT / "exercises/01_two_phases.ipynb").read_bytes())
        assert Source().topic_of(other, "a.ipynb") == "two_phases"
        bare = replace(other, cells=tuple(replace(c, grade_id="") for c in other.cells))
        for notebook in (other, bare):
            for name in ("a.ipynb", "Copy of 03_kv_cache.ipynb"):
                with pytest.raises(Unreadable):
                    Source(out, (CHECKS,), VARIANTS).topic_of(notebook, name)


class TestTheCommand:
    @pytest.fixture
    def quick(self) -> list[str]:
        return ["release", "--topics", "kv_cache", "--no-prove"]

    def test_it_makes_a_release_once_says_so_and_leaves_another_one_alone(
        self, quick: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place = tmp_path / "release"
        assert twophase(*quick, "--out", str(place), capsys=capsys)[0] == 0
        assert "is there already" in twophase(*quick, "--out", str(place), capsys=capsys)[1]
        (place / "README.md").write_text("mine")
        code, said = twophase(*quick, "--out", str(place), capsys=capsys)
        assert (code, (place / "README.md").read_text()) == (2, "mine")
        assert "different: README.md" in said
        assert "--replace" in said
        assert twophase(*quick, "--out", str(place), "--replace", capsys=capsys)[0] == 0
        assert (place / "README.md").read_text() != "mine"
        (place / "my").mkdir()
        code, said = twophase(*quick, "--out", str(place), "--replace", capsys=capsys)
        assert (code, "somebody works there" in said) == (2, True)
        assert [p.name for p in tmp_path.iterdir()] == ["release"]  # nothing half-made stays

    @pytest.mark.parametrize(
        ("place", "says"),
        [
            (ROOT, "is the course itself or holds it"),
            (ROOT.parent, "is the course itself or holds it"),
            (ROOT / "lib" / "release", "is in"),
            (ROOT / "exercises", "is in"),
            (VARIANTS / "out", "is in"),
        ],
    )
    def test_a_place_in_the_course_is_refused(
        self, quick: list[str], place: Path, says: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = sorted(p.name for p in ROOT.iterdir())
        code, said = twophase(
            *quick, "--variants", str(VARIANTS), "--out", str(place), capsys=capsys
        )
        assert (code, says in said) == (2, True), said
        assert sorted(p.name for p in ROOT.iterdir()) == before

    def test_bad_use_is_one_sentence_and_exit_2(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "full").mkdir()
        (tmp_path / "full/thesis.txt").write_text("years of work")
        (tmp_path / "short").write_text("1234")
        (tmp_path / "short").chmod(0o600)
        free = str(tmp_path / "free")
        for arguments, says in (
            (["release"], "--out release/"),
            (["release", "--out", str(tmp_path / "full"), "--no-prove"], "is no release"),
            (["release", "--out", str(tmp_path / "short"), "--no-prove"], "is a file"),
            (["release", "--out", free, "--topics", "pages"], "there is no topic 'pages'"),
            (["release", "--out", free, "--checks", str(tmp_path / "none")], "is no folder"),
            (["release", "--out", free, "--secret", str(tmp_path / "short")], "needs at least 16"),
        ):
            code, said = twophase(*arguments, capsys=capsys)
            assert (code, says in said) == (2, True), said
        assert not (tmp_path / "free").exists()

    def test_a_check_that_accepts_a_wrong_answer_is_not_released(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = Path(shutil.copytree(CHECKS, tmp_path / "mine"))
        text(
            "kv_cache/send_s.py",
            "return kv_bytes_per_token * n_tokens / link",
            "return 8 * kv_bytes_per_token * n_tokens / link",
        )(folder)
        code, said = twophase(
            "release",
            "--out",
            str(tmp_path / "o"),
            "--checks",
            str(folder),
            "--no-prove",
            capsys=capsys,
        )
        assert code == 1
        assert "accepts the misconception bits_as_bytes" in said
        assert sorted(p.name for p in tmp_path.iterdir()) == ["mine"]

    def test_a_model_solution_that_is_wrong_is_not_released(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = zygote()
        monkeypatch.setattr("twophase.grading.sandbox.zygote_handle.make_zygote", lambda: one)
        folder = Path(shutil.copytree(VARIANTS, tmp_path / "held"))
        text("solutions/03_kv_cache.ipynb", "chips + (left_over > 0)", "chips")(folder)
        arguments = [
            "--out",
            str(tmp_path / "o"),
            "--topics",
            "kv_cache",
            "--variants",
            str(folder),
        ]
        code, said = twophase("release", *arguments, capsys=capsys)
        assert code == 1
        assert (
            f"the model solution: {HELD} (How many chips a batch needs) is judged wrong: You"
            " rounded down" in said
        )
        assert sorted(p.name for p in tmp_path.iterdir()) == ["held"]

    def test_a_new_secret_is_made_once(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place = tmp_path / "secret"
        main_ends = twophase("release", "--new-secret", str(place), capsys=capsys)
        assert main_ends[0] == 0
        assert place.stat().st_mode & 0o777 == 0o600
        assert twophase("release", "--new-secret", str(place), capsys=capsys)[0] == 2

    def test_a_notebook_whose_cells_are_not_in_order_is_one_sentence(self, tmp_path: Path) -> None:
        folder = Path(shutil.copytree(VARIANTS, tmp_path / "held"))
        without_cell(f"{HELD}-check")(folder)
        with pytest.raises(ValueError, match="must stand its check cell"):
            handout.make(course_root(), Source(variants=folder), ["kv_cache"])
