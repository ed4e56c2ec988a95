"""A course in nbgrader graded by us: its own programs before and after, our scores in its
gradebook, our pages through its exchange."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("nbgrader.apps", reason="nbgrader does not run on this system")

from nbgrader_tools import (
    AGAIN,
    ASSIGNMENT,
    BATCH,
    BYTES,
    ESSAY,
    LATE,
    NAME,
    ON_TIME,
    Department,
    misconceived,
    right,
    solutions,
)
from test_grading_release import FOLDERS, HELD, ROOT

from twophase.checks import registry
from twophase.cli.main import main
from twophase.grading.nbgrader import files, result_of_notebook
from twophase.grading.nbgrader.result_of_notebook import NotebookPath
from twophase.grading.release import handout, placing
from twophase.grading.release.release import Source

POINTS = {i: float(registry.load(i).points) for i in (BATCH, BYTES)}
ALL = sum(POINTS.values())
RIGHT = {BATCH: right(BATCH), BYTES: right(BYTES)}
HALF = RIGHT | {BATCH: misconceived()}
# every check cell runs as it was handed out, and does nothing: nbgrader gives all points
FORGED = {
    BATCH: "def max_batch(*given):\n    return 0\ndef check(exercise_id):\n    pass",
    BYTES: "def kv_bytes(*given):\n    raise ValueError('</pre><script>forged()</script>')",
}


@pytest.fixture(scope="module", autouse=True)
def _programs_of_this_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """nbgrader starts `alembic` by its name, and reads the user's own configuration, which is not
    ours to read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path_factory.mktemp("config")))
        patch.setenv("JUPYTER_DATA_DIR", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Department:
    """Four students have handed in, one of them twice and one late. All is collected and graded,
    and nothing recorded."""
    place = Department(tmp_path_factory.mktemp("department")).open(solutions())
    place.hand_in("ada", {}, ON_TIME)
    place.hand_in("ada", RIGHT | {ESSAY: "It becomes compute-bound."}, AGAIN)
    place.hand_in("ben", HALF, ON_TIME)
    place.hand_in("eve", FORGED, ON_TIME)
    place.hand_in("lea", RIGHT, LATE)
    place.exchange("Collect")
    place.grade()
    return place


@pytest.fixture
def place(graded: Department, tmp_path: Path) -> Department:
    """A copy of it for a test that changes something."""
    shutil.copytree(graded.root, tmp_path / "department")
    return Department(tmp_path / "department")


class Said:
    """What `twophase nbgrader` says and ends with."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, place: Department, action: str = "record", *more: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(
                [
                    "nbgrader",
                    action,
                    str(place.course / "grades"),
                    "--course-dir",
                    str(place.course),
                    *more,
                ]
            )
        said = "".join(self._capsys.readouterr())
        assert "Traceback" not in said
        return int(ended.value.code or 0), " ".join(said.split())


@pytest.fixture
def twophase(capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(capsys)


def checks(place: Department, student: str) -> list[float | None]:
    scores = place.scores(student)
    return [scores[f"{i}-check"][0] for i in (BATCH, BYTES)]


class TestScores:
    def test_every_student_has_the_points_that_the_grader_gave(
        self, place: Department, twophase: Said
    ) -> None:
        assert twophase(place) == (0, "4 recorded, 4 of them new or changed")
        assert checks(place, "ada") == checks(place, "lea") == [POINTS[BATCH], POINTS[BYTES]]
        assert checks(place, "ben") == [0, POINTS[BYTES]]
        assert checks(place, "eve") == [0, 0]

    def test_a_cell_that_a_person_reads_waits_for_one(
        self, place: Department, twophase: Said
    ) -> None:
        twophase(place)
        assert {s: place.scores(s)[ESSAY] for s in ("ada", "eve")} == {
            "ada": (None, True),
            "eve": (None, True),
        }
        assert place.scores("ada")[f"{BATCH}-check"] == (POINTS[BATCH], False)

    def test_nbgraders_export_has_them_with_the_courses_own_penalty_for_lateness(
        self, place: Department, twophase: Said
    ) -> None:
        twophase(place)
        rows = place.export()
        assert [float(rows[s]["score"]) for s in ("ada", "ben", "eve", "lea")] == [
            ALL,
            POINTS[BYTES],
            0,
            ALL - 1,
        ]
        assert rows["lea"]["late_submission_penalty"] == "1.0"
        assert rows["ada"]["timestamp"] == "2030-01-01 11:00:00"  # of the second time

    def test_formgrader_sees_graded_work_and_shows_the_verdict_below_the_check(
        self, place: Department, twophase: Said
    ) -> None:
        twophase(place)
        api = place.api()
        seen = {s["student"]: s for s in api.get_submissions(ASSIGNMENT)}
        assert all(s["autograded"] for s in seen.values())
        assert seen["ben"]["score"] == POINTS[BYTES]
        path = place.course / "autograded" / "ben" / ASSIGNMENT / f"{NAME}.ipynb"
        nb = nbformat.read(path, as_version=4)
        nbformat.validate(nb)
        (check,) = [
            c
            for c in nb.cells
            if c.metadata.get("nbgrader", {}).get("grade_id") == f"{BATCH}-check"
        ]
        assert check.source == f'check("{BATCH}")'
        assert "weights" in check.outputs[0].text
        assert "0 of 2 points" in check.outputs[0].text

    def test_a_second_time_changes_nothing(self, place: Department, twophase: Said) -> None:
        twophase(place)
        before = dump(place)
        assert twophase(place) == (0, "4 recorded, 0 of them new or changed")
        assert dump(place) == before

    def test_what_a_person_has_given_stays(self, place: Department, twophase: Said) -> None:
        twophase(place)
        with place.gradebook() as book:
            by_hand = {
                i: book.find_grade(i, NAME, ASSIGNMENT, "ben") for i in (ESSAY, f"{BATCH}-check")
            }
            by_hand[ESSAY].manual_score = 2.5
            by_hand[f"{BATCH}-check"].manual_score, by_hand[f"{BATCH}-check"].extra_credit = (
                1.5,
                0.25,
            )
            for grade in by_hand.values():
                grade.needs_manual_grade = False
            book.find_comment(BATCH, NAME, ASSIGNMENT, "ben").manual_comment = "Nearly."
            book.db.commit()
        assert twophase(place)[0] == 0
        with place.gradebook() as book:
            assert book.find_submission(ASSIGNMENT, "ben").score == 2.5 + 1.5 + 0.25 + POINTS[BYTES]
            assert not book.find_submission(ASSIGNMENT, "ben").needs_manual_grade
            assert book.find_comment(BATCH, NAME, ASSIGNMENT, "ben").comment == "Nearly."

    def test_a_resubmission_waits_until_it_is_graded_and_then_counts(
        self, place: Department, twophase: Said
    ) -> None:
        twophase(place)
        with place.gradebook() as book:
            essay = book.find_grade(ESSAY, NAME, ASSIGNMENT, "ben")
            essay.manual_score, essay.needs_manual_grade = 2, False
            book.db.commit()
        place.hand_in("ben", RIGHT, AGAIN)
        place.exchange("Collect", update=True)
        code, said = twophase(place)
        assert code == 1
        assert (
            "ben/ps1/03_kv_cache: what is collected now is another version than the one graded"
            in said
        )
        assert checks(place, "ben") == [0, POINTS[BYTES]]
        place.grade()
        assert twophase(place) == (0, "4 recorded, 1 of them new or changed")
        assert checks(place, "ben") == [POINTS[BATCH], POINTS[BYTES]]
        with place.gradebook() as book:
            essay = book.find_grade(ESSAY, NAME, ASSIGNMENT, "ben")
            assert (essay.manual_score, essay.needs_manual_grade) == (
                2,
                True,
            )  # a person looks at the new version

    def test_work_that_cannot_be_read_is_not_a_zero(
        self, place: Department, twophase: Said
    ) -> None:
        twophase(place)
        (place.course / "submitted" / "ben" / ASSIGNMENT / f"{NAME}.ipynb").write_text(
            "no notebook", encoding="utf-8"
        )
        place.grade()
        code, said = twophase(place)
        assert code == 1
        assert "ben/ps1/03_kv_cache: not recorded, " in said
        assert "JSON cannot be read" in said
        assert checks(place, "ben") == [0, POINTS[BYTES]]  # as they were

    @pytest.mark.timeout(1200)  # a kernel
    def test_nbgraders_own_autograde_gives_a_forger_everything_and_the_gradebook_ends_honest(
        self, place: Department, twophase: Said
    ) -> None:
        done = place.api().autograde(ASSIGNMENT, "eve")
        assert done["success"], done.get("error") or done.get("log")
        assert checks(place, "eve") == [POINTS[BATCH], POINTS[BYTES]]
        twophase(place)
        assert checks(place, "eve") == [0, 0]


class TestFeedback:
    def test_our_pages_reach_their_students_through_the_exchange(
        self, place: Department, twophase: Said
    ) -> None:
        code, said = twophase(place, "feedback")
        assert code == 0
        assert said.startswith("4 pages in feedback/")
        place.exchange("ReleaseFeedback")
        for student, at in (("ada", AGAIN), ("ben", ON_TIME)):
            place.exchange("FetchFeedback", student)
            page = place.root / "home" / student / ASSIGNMENT / "feedback" / at / f"{NAME}.html"
            assert f"<h1>{student}/{ASSIGNMENT}/{NAME}.ipynb</h1>" in page.read_text(
                encoding="utf-8"
            )
        assert "weights left out" in page.read_text(encoding="utf-8")
        first = place.root / "home" / "ada" / ASSIGNMENT / "feedback" / ON_TIME
        assert not first.exists()  # what she handed in first was not graded

    def test_work_without_a_secret_gets_none_because_it_would_stop_everybodys(
        self, place: Department, twophase: Said
    ) -> None:
        (place.course / "submitted" / "eve" / ASSIGNMENT / "submission_secret.txt").unlink()
        code, said = twophase(place, "feedback")
        assert code == 1
        assert "eve/ps1/03_kv_cache: no feedback" in said
        place.exchange("ReleaseFeedback")
        assert len(list((place.root / "exchange" / "inference" / "feedback").glob("*.html"))) == 3

    def test_nbgraders_generate_feedback_has_the_scores_too(
        self, place: Department, twophase: Said
    ) -> None:
        twophase(place)
        done = place.api().generate_feedback(ASSIGNMENT, "ben")
        assert done["success"], done.get("error") or done.get("log")
        page = (place.course / "feedback" / "ben" / ASSIGNMENT / f"{NAME}.html").read_text(
            encoding="utf-8"
        )
        assert f"(Score: {POINTS[BYTES]} / {ALL + 3})" in page
        assert "holds no weights" in page

    def test_no_page_runs_what_a_student_wrote(self, place: Department, twophase: Said) -> None:
        twophase(place, "feedback")
        path = place.course / "feedback" / "eve" / ASSIGNMENT / f"{NAME}.html"
        ours = path.read_text(encoding="utf-8")
        twophase(place)
        assert place.api().generate_feedback(ASSIGNMENT, "eve")["success"]
        theirs = path.read_text(encoding="utf-8")
        assert ours != theirs
        for page in (ours, theirs):
            assert "<script>forged" not in page
            assert "forged()" in page

    def test_a_link_in_place_of_the_secret_is_not_followed(
        self, place: Department, twophase: Said
    ) -> None:
        secret = place.course / "submitted" / "eve" / ASSIGNMENT / "submission_secret.txt"
        secret.unlink()
        secret.symlink_to(place.course / "nbgrader_config.py")
        code, said = twophase(place, "feedback")
        assert code == 1
        assert "eve/ps1/03_kv_cache: no feedback" in said
        assert not (place.course / "feedback" / "eve").exists()


class TestRefusals:
    def refused(self, place: Department, twophase: Said, sentence: str) -> None:
        path = place.course / "gradebook.db"
        before = path.read_bytes() if path.exists() else None
        code, said = twophase(place)
        assert code == 2
        assert sentence in said
        assert (path.read_bytes() if path.exists() else None) == before

    def change(self, place: Department, sql: str) -> None:
        with contextlib.closing(sqlite3.connect(place.course / "gradebook.db")) as db, db:
            db.execute(sql)

    def test_no_gradebook(self, place: Department, twophase: Said) -> None:
        (place.course / "gradebook.db").unlink()
        self.refused(place, twophase, "there is no gradebook")

    def test_feedback_is_for_a_course(self, place: Department, twophase: Said) -> None:
        for there in (place.course / "gradebook.db", place.course / "submitted"):
            there.rename(there.with_suffix(".elsewhere"))
        code, said = twophase(place, "feedback")
        assert code == 2
        assert "is no nbgrader course: it has no gradebook and no submitted/" in said
        assert not (place.course / "feedback").exists()

    def test_feedback_on_a_full_disk(
        self, place: Department, twophase: Said, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(files, "write_feedback", full)
        code, said = twophase(place, "feedback")
        assert code == 3
        assert "feedback/ cannot be written: No space left on device" in said

    @pytest.mark.parametrize("content", [b"", b"no database" * 500])
    def test_a_file_that_is_none(self, place: Department, twophase: Said, content: bytes) -> None:
        (place.course / "gradebook.db").write_bytes(content)
        self.refused(place, twophase, "no gradebook")

    def test_a_gradebook_of_another_version(self, place: Department, twophase: Said) -> None:
        self.change(place, "UPDATE alembic_version SET version_num = '50a4d84c131a'")
        self.refused(place, twophase, "`nbgrader db upgrade`")

    def test_an_unknown_assignment(self, place: Department, twophase: Said) -> None:
        self.change(place, "UPDATE assignment SET name = 'ps2'")
        self.refused(place, twophase, "the gradebook has no assignment 'ps1'")

    def test_other_points(self, place: Department, twophase: Said) -> None:
        self.change(place, "UPDATE grade_cells SET max_score = 7 WHERE max_score = 2")
        self.refused(place, twophase, "is worth 7 points in the gradebook and 2 in the results")

    def test_other_cells(self, place: Department, twophase: Said) -> None:
        self.change(place, f"UPDATE base_cell SET name = 'other' WHERE name = '{BATCH}-check'")
        self.refused(place, twophase, f"the results have {BATCH}-check, and the gradebook does not")

    def test_a_locked_gradebook(self, place: Department, twophase: Said) -> None:
        with contextlib.closing(sqlite3.connect(place.course / "gradebook.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            self.refused(place, twophase, "is locked: stop what else has it open")

    def test_a_rule_for_lateness_that_fails_on_the_last_student_leaves_nothing_of_the_first(
        self, place: Department, twophase: Said
    ) -> None:
        config = place.course / "nbgrader_config.py"
        config.write_text(config.read_text().replace("return 1", "return 1 / 0"))
        self.refused(
            place, twophase, "the course's rule for lateness, OnePoint, failed (ZeroDivisionError"
        )
        with place.gradebook() as book:
            assert book.students == []

    def test_a_folder_that_cannot_be_written_is_said_with_what_was_done(
        self, place: Department, twophase: Said
    ) -> None:
        (place.course / "autograded").write_text("a file in its place")
        code, said = twophase(place)
        assert code == 2
        assert "the gradebook has the scores, but autograded/ cannot be written" in said
        assert checks(place, "ada") == [POINTS[BATCH], POINTS[BYTES]]

    def test_a_configuration_that_fails(self, place: Department, twophase: Said) -> None:
        (place.course / "nbgrader_config.py").write_text("c.CourseDirectory.db_url = nowhere")
        self.refused(place, twophase, "cannot be loaded (NameError")

    def test_an_nbgrader_that_is_not_there(
        self, place: Department, twophase: Said, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "nbgrader.apps.baseapp", None)
        self.refused(place, twophase, "nbgrader is not installed here")


class TestCollected:
    def test_results_of_the_exchanges_inbound_count_for_the_version_that_was_collected(
        self, place: Department, twophase: Said
    ) -> None:
        (place.course / "grades" / "results.jsonl").unlink()
        place.grade(place.root / "exchange" / "inference" / "inbound")
        assert twophase(place) == (0, "4 recorded, 4 of them new or changed")
        assert checks(place, "ada") == [POINTS[BATCH], POINTS[BYTES]]  # not those of the first time

    def test_what_was_graded_and_not_collected_waits(
        self, place: Department, twophase: Said
    ) -> None:
        shutil.rmtree(place.course / "submitted" / "ada")
        code, said = twophase(place)
        assert code == 1
        assert "run `nbgrader collect` first" in said
        assert "3 recorded" in said

    def test_a_notebook_of_another_name_waits_for_a_person(
        self, place: Department, twophase: Said
    ) -> None:
        folder = place.course / "submitted" / "ben" / ASSIGNMENT
        (folder / f"{NAME}.ipynb").rename(folder / "mine.ipynb")
        (place.course / "grades" / "results.jsonl").unlink()
        place.grade()
        code, said = twophase(place)
        assert code == 1
        assert "ben/ps1/mine: passed over; the gradebook has no such notebook in ps1" in said
        assert "3 recorded" in said

    def test_a_time_that_is_none_is_said_and_costs_nothing(
        self, place: Department, twophase: Said
    ) -> None:
        (place.course / "submitted" / "lea" / ASSIGNMENT / "timestamp.txt").write_text(
            "\0 tomorrow /etc/passwd"
        )
        code, said = twophase(place)
        assert code == 0
        assert "lea/ps1: when it was handed in is not known" in said
        assert float(place.export()["lea"]["score"]) == ALL


class TestRelease:
    @pytest.mark.timeout(1200)  # a kernel
    @pytest.mark.parametrize(
        ("student", "says"),
        [
            # of three cells one is right, one the essay
            ("ben", ("VALIDATION FAILED ON 2 CELL(S)", "holds no weights")),
            pytest.param(
                "ada",
                ("Success! Your notebook passes all the tests.",),
                marks=pytest.mark.more,
            ),
        ],
    )
    def test_nbgrader_validate_passes_right_answers_and_no_others(
        self, graded: Department, student: str, says: tuple[str, ...]
    ) -> None:
        from nbgrader.validator import Validator

        validator = Validator()
        validator.stream = out = io.StringIO()
        path = graded.root / "home" / student / ASSIGNMENT / f"{NAME}.ipynb"
        validator.validate_and_print(str(path))
        assert all(words in out.getvalue() for words in says), out.getvalue()

    def test_a_release_is_an_assignment_and_held_back_exercises_get_their_points_from_us_alone(
        self, tmp_path: Path, twophase: Said
    ) -> None:
        from nbgrader import preprocessors as steps

        kept = [
            steps.LockCells,
            steps.ClearOutput,
            steps.CheckCellMetadata,
            steps.ComputeChecksums,
            steps.SaveCells,
        ]
        made = handout.make(ROOT, FOLDERS, ["kv_cache"])
        with placing.written(tmp_path / "release", made) as folder:
            placing.move(folder, tmp_path / "release")
        nb = nbformat.read(tmp_path / "release" / "exercises" / f"{NAME}.ipynb", as_version=4)
        place = Department(tmp_path / "department").open(nb, preprocessors=kept)
        generated = nbformat.read(
            place.course / "release" / ASSIGNMENT / f"{NAME}.ipynb", as_version=4
        )
        assert [(c.id, c.source, c.metadata) for c in generated.cells] == [
            (c.id, c.source, c.metadata) for c in nb.cells
        ]
        place.hand_in("zoe", {}, ON_TIME)
        place.exchange("Collect")
        place.grade(source=Source(tmp_path / "release", FOLDERS.checks, FOLDERS.variants))
        assert twophase(place) == (0, "1 recorded, 1 of them new or changed")
        scores = place.scores("zoe")
        assert scores[f"{HELD}-check"] == (0, False)
        assert len(scores) == sum(
            bool(c.metadata.get("nbgrader", {}).get("grade")) for c in nb.cells
        )


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("ada/ps1/x.ipynb", NotebookPath("ada", "ps1", "x")),
        ("submitted/ada/ps1/x.ipynb", NotebookPath("ada", "ps1", "x")),
        ("course/submitted/ada/ps1/x.ipynb", NotebookPath("ada", "ps1", "x")),
        ("inbound/ada+ps1+2030-01-01 10:00:00 UTC+a-b/x.ipynb", NotebookPath("ada", "ps1", "x")),
        ("ada/ps1/ada/ps2/x.ipynb", None),  # a folder that a student named
        ("ada/ps1/ben+ps1+2030-01-01 10:00:00 UTC/x.ipynb", None),
        ("ada/ps1/all.zip/x.ipynb", None),
        ("ada/x.ipynb", None),
        ("ben/ps1/x.ipynb", None),
        ("ada/../x.ipynb", None),
    ],
)
def test_a_path_says_what_a_file_is_only_where_nbgrader_looks(
    file: str, place: NotebookPath | None
) -> None:
    assert result_of_notebook.path_of({"file": file, "student": "ada"}) == place


def dump(place: Department) -> list[str]:
    """The whole gradebook as text."""
    with contextlib.closing(sqlite3.connect(place.course / "gradebook.db")) as db:
        return list(db.iterdump())
