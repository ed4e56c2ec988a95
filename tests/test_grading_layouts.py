"""Submissions are found as platforms lay them out, nobody is forgotten, and no zip, however made,
does harm."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import random
import shutil
import stat
import struct
import sys
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import pytest
from draws import draws
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from layout_tools import CANVAS, GRADESCOPE, MOODLE, MOODLE_FLAT, NOTEBOOK, lay, seen, zipped

from twophase.grading.errors import Unreadable
from twophase.grading.files.notebook import MAX_BYTES
from twophase.grading.intake import archives
from twophase.grading.intake.layouts import instant
from twophase.grading.intake.submissions import Submission, describe, find

ANN = ("1001", "2026-10-30T20:14:03.123456+00:00", True)
LAID = {"gradescope": GRADESCOPE, "canvas": CANVAS, "moodle": MOODLE}
BROKEN = draws(60, HealthCheck.function_scoped_fixture)


def trouble(found: list[Submission]) -> dict[str, str]:
    return {s.name: s.trouble for s in found if s.trouble}


def why(submission: Submission) -> str:
    with pytest.raises(Unreadable) as raised:
        submission.read()
    return str(raised.value)


class TestGradescope:
    def test_students_times_and_groups_come_from_its_metadata(self, tmp_path: Path) -> None:
        found = find(lay(tmp_path, GRADESCOPE))
        assert seen(found) == {
            "submission_801/03_kv_cache.ipynb": ANN,
            "submission_802/answers/03.ipynb": (
                "1002 & cy@x.edu",
                "2026-10-30T22:30:00+00:00",
                True,
            ),
            "submission_803": ("Dee Diaz", "2026-10-30T23:00:00+02:00", False),
        }
        assert describe(found).startswith(
            "Gradescope's layout: 2 notebooks of 3 students; 1 file or folder"
        )

    def test_the_folder_above_the_export_is_as_good(self, tmp_path: Path) -> None:
        lay(tmp_path / "assignment_7_export", GRADESCOPE)
        assert seen(find(tmp_path))["assignment_7_export/submission_801/03_kv_cache.ipynb"] == ANN

    def test_a_submission_whose_folder_is_gone_is_told_of(self, tmp_path: Path) -> None:
        shutil.rmtree(lay(tmp_path, GRADESCOPE) / "submission_801")
        assert "has no folder" in trouble(find(tmp_path))["submission_801"]

    @pytest.mark.parametrize(
        "text", ["- a", "a: [", "a: b", "\xff", "a: {b: c}\n? [x]\n: y", "[" * 3000]
    )
    def test_metadata_that_cannot_be_read_is_one_sentence(self, tmp_path: Path, text: str) -> None:
        lay(tmp_path, {**GRADESCOPE, "submission_metadata.yml": text.encode("latin-1")})
        with pytest.raises(
            ValueError, match=r"submission_metadata.yml .*download the export again"
        ):
            find(tmp_path)

    def test_a_folder_that_the_metadata_does_not_name_is_graded_without_a_student(
        self, tmp_path: Path
    ) -> None:
        lay(tmp_path, {**GRADESCOPE, "extra/x.ipynb": NOTEBOOK})
        assert seen(find(tmp_path))["extra/x.ipynb"] == ("", "", True)


class TestCanvas:
    def test_the_student_is_the_number_of_the_user(self, tmp_path: Path) -> None:
        assert seen(find(lay(tmp_path, CANVAS))) == {
            "adamsann_101_9001_03_kv_cache.ipynb": ("101", "", True),
            "brownbob_LATE_102_9002_03_kv_cache-1.ipynb": ("102", "", True),
            "clarkcy_103_9003_answers.py": ("103", "", False),
            "diazdee_104_link.html": ("104", "", False),
        }

    def test_an_anonymous_one_has_its_mark(self, tmp_path: Path) -> None:
        assert seen(find(lay(tmp_path, ["anon_W5nC0_9001_x.ipynb"]))) == {
            "anon_W5nC0_9001_x.ipynb": ("W5nC0", "", True)
        }

    def test_other_files_of_a_student_with_a_notebook_are_passed_over(self, tmp_path: Path) -> None:
        lay(tmp_path, {**CANVAS, "adamsann_101_9009_notes.pdf": b"%PDF"})
        assert "adamsann_101_9009_notes.pdf" not in seen(find(tmp_path))

    @pytest.mark.parametrize(
        "names",
        [("hw_1_2_ann.ipynb", "hw_1_2_bob.ipynb"), ("ann_2026_10_x.ipynb", "bob_2026_11_x.ipynb")],
    )
    def test_versions_and_dates_in_plain_names_are_no_users(
        self, tmp_path: Path, names: tuple[str, str]
    ) -> None:
        assert {s.student for s in find(lay(tmp_path, names))} == {""}


class TestMoodle:
    @pytest.mark.parametrize("files", [MOODLE, MOODLE_FLAT], ids=["folders", "flat"])
    def test_the_student_is_the_participant(self, tmp_path: Path, files: dict[str, bytes]) -> None:
        found = find(lay(tmp_path, files))
        assert sorted((s.student, not s.trouble) for s in found) == [
            ("501", True),
            ("502", True),
            ("503", False),
        ]
        assert describe(found).startswith("Moodle's layout: 2 notebooks of 3 students")

    def test_a_name_chosen_by_the_student_after_the_number_is_no_sign(self, tmp_path: Path) -> None:
        name = "Eve E_507_assignsubmission_file_Ann A_501_assignsubmission_file_x.ipynb"
        assert [s.student for s in find(lay(tmp_path, [name]))] == ["507"]


class TestNbgrader:
    def test_what_its_own_exchange_submits_and_collects_is_understood(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("nbgrader")
        from nbgrader.auth import Authenticator
        from nbgrader.coursedir import CourseDirectory
        from nbgrader.exchange.default import ExchangeCollect, ExchangeSubmit
        from traitlets.config import Config

        # its gradebook starts alembic
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        exchange, course, home = tmp_path / "exchange", tmp_path / "course", tmp_path / "home"
        for folder in ("inbound", "outbound/hw1"):
            (exchange / "c101" / folder).mkdir(parents=True)
        lay(exchange / "c101/outbound/hw1", ["x.ipynb"])
        (exchange / "c101/inbound").chmod(0o2733)
        lay(home / "hw1", ["x.ipynb"])
        course.mkdir()
        common = {
            "CourseDirectory": {"root": str(course), "course_id": "c101", "assignment_id": "hw1"},
            "Exchange": {
                "root": str(exchange),
                "cache": str(tmp_path / "cache"),
                "assignment_dir": str(home),
            },
            "ExchangeCollect": {"check_owner": False},
        }
        for student, with_random in (("ann", True), ("x", False)):
            config = Config(common)
            config.ExchangeSubmit.add_random_string = with_random
            where = CourseDirectory(config=config, student_id=student)
            ExchangeSubmit(
                coursedir=where, authenticator=Authenticator(config=config), config=config
            ).start()
        short = next((exchange / "c101/inbound").glob("x+*"))
        short.rename(
            short.with_name(f"bob+b{short.name[1:]}")
        )  # a name that nbgrader's own collecting does not take
        config = Config(common)
        ExchangeCollect(
            coursedir=CourseDirectory(config=config, student_id="ann"), config=config
        ).start()
        lay(course / "source/hw1", ["x.ipynb"])

        inbound = find(exchange / "c101")
        assert sorted(s.student for s in inbound) == ["ann", "bob+b"]
        assert {s.name.split("/")[0] for s in inbound} == {"inbound"}
        stamps = {s.student: s.submitted for s in inbound}
        for root in (course, course / "submitted"):
            collected = find(root)
            assert [(s.student, s.submitted) for s in collected] == [("ann", stamps["ann"])]
        assert stamps["ann"].endswith("+00:00")

    def test_an_attempt_without_a_notebook_is_told_of(self, tmp_path: Path) -> None:
        lay(
            tmp_path,
            {
                "ann+hw+2026-10-30 21:14:03.123456 UTC+AbC-_1234567/x.txt": b"",
                "b+hw+2026-10-30 21:14:03.1 +0200/x.ipynb": b"",
            },
        )
        found = find(tmp_path)
        assert [(s.student, s.submitted, bool(s.trouble)) for s in found] == [
            ("ann", "2026-10-30T21:14:03.123456+00:00", True),
            ("b", "2026-10-30T21:14:03.100000+02:00", False),
        ]

    def test_one_student_with_a_timestamp_does_not_make_a_plain_class_nbgraders(
        self, tmp_path: Path
    ) -> None:
        lay(
            tmp_path,
            {
                "ann/hw/x.ipynb": NOTEBOOK,
                "eve/hw/x.ipynb": NOTEBOOK,
                "eve/hw/timestamp.txt": b"2020-01-01 00:00:00 UTC",
            },
        )
        assert {(s.student, s.submitted) for s in find(tmp_path)} == {("", "")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-10-30 21:14:03.123456 UTC", "2026-10-30T21:14:03.123456+00:00"),
        ("2026-10-30 21:14:03 +0200", "2026-10-30T21:14:03+02:00"),
        ("2026-10-30 21:14:03.5 Z\n", "2026-10-30T21:14:03.500000+00:00"),
        ("2026-10-30 21:14:03 EST", ""),
        ("2026-13-30 21:14:03 UTC", ""),
        ("2026-10-30", ""),
        ("2026-10-30 21:14:03 +9900", ""),
    ],
)
def test_a_time_counts_only_if_its_zone_is_certain(text: str, expected: str) -> None:
    assert instant(text) == expected


class TestWhichLayout:
    @pytest.mark.parametrize("layout", LAID)
    def test_a_zip_and_what_it_unpacks_to_have_the_same_submissions(
        self, tmp_path: Path, layout: str
    ) -> None:
        folder = lay(tmp_path / "in", LAID[layout])
        (tmp_path / "in.zip").write_bytes(zipped(LAID[layout]))
        assert seen(find(folder)) == seen(find(tmp_path / "in.zip")) == seen(find(folder, layout))

    def test_downloads_of_several_platforms_in_one_folder(self, tmp_path: Path) -> None:
        (tmp_path / "hw 1.zip").write_bytes(zipped(CANVAS))
        lay(tmp_path / "hw2", MOODLE)
        found = find(tmp_path)
        assert {s.student for s in found} == {"101", "102", "103", "104", "501", "502", "503"}
        assert describe(found).startswith(
            "Canvas's layout and Moodle's layout: 4 notebooks of 7 students"
        )

    def test_canvas_zip_beside_plain_folders(self, tmp_path: Path) -> None:
        lay(tmp_path, {"ann/x.ipynb": NOTEBOOK, "submissions.zip": zipped(CANVAS)})
        assert {s.student for s in find(tmp_path)} == {"", "101", "102", "103", "104"}

    @pytest.mark.parametrize("files", LAID.values(), ids=LAID)
    def test_a_student_cannot_hand_in_for_another_by_imitating_a_download(
        self, tmp_path: Path, files: dict[str, bytes]
    ) -> None:
        lay(tmp_path, {"bob/x.ipynb": NOTEBOOK, "eve.zip": zipped(files)})
        lay(tmp_path / "mal", files)
        assert {s.student for s in find(tmp_path)} == {""}
        inside = zipped({f"{n}": d for n, d in files.items()})
        lay(tmp_path / "canvas", {**CANVAS, "eve_666_9100_x.zip": inside})
        assert {s.student for s in find(tmp_path / "canvas") if "eve" in s.name} == {"666"}

    def test_a_layout_that_is_asked_for_and_not_there_is_one_sentence(self, tmp_path: Path) -> None:
        lay(tmp_path, ["ann/x.ipynb"])
        for layout in (*LAID, "nbgrader"):
            with pytest.raises(ValueError, match=r"is not laid out as .* downloads are"):
                find(tmp_path, layout)
        with pytest.raises(
            ValueError, match="no layout 'blackboard'; it is one of auto, gradescope"
        ):
            find(tmp_path, "blackboard")

    def test_plain_can_be_asked_for(self, tmp_path: Path) -> None:
        assert {s.student for s in find(lay(tmp_path, CANVAS), "plain")} == {""}


class TestNobodyIsForgotten:
    def test_a_folder_with_other_files_only_is_one_unreadable_submission(
        self, tmp_path: Path
    ) -> None:
        lay(
            tmp_path,
            {
                "ann/x.ipynb": NOTEBOOK,
                "ann/data/x.csv": b"",
                "bob/x.ipynb.txt": b"",
                "bob/src/a.py": b"",
                "README": b"",
            },
        )
        (tmp_path / "empty").mkdir()
        lay(tmp_path / "grades", {"results.jsonl": b"", "feedback/index.html": b""})
        assert trouble(find(tmp_path)) == {
            "bob": "it holds no notebook (.ipynb), only a.py, x.ipynb.txt"
        }

    def test_on_a_shelf_every_folder_counts(self, tmp_path: Path) -> None:
        lay(
            tmp_path,
            {"hw3/ann/x.ipynb": NOTEBOOK, "hw3/bob/x.pdf": b"", "hw4/bob/x.ipynb": NOTEBOOK},
        )
        assert list(trouble(find(tmp_path))) == ["hw3/bob"]

    def test_a_zip_without_a_notebook_is_one_unreadable_submission(self, tmp_path: Path) -> None:
        lay(
            tmp_path,
            {
                "ann/x.ipynb": NOTEBOOK,
                "ann/data.zip": zipped({"a.csv": b""}),
                "bob.zip": zipped({"a.py": b""}),
            },
        )
        (tmp_path / "cy.zip").write_bytes(zipped({}))
        found = trouble(find(tmp_path))
        assert found["bob.zip"] == "it holds no notebook (.ipynb), only a.py"
        assert set(found) == {"bob.zip", "cy.zip"}  # ann's data lie beside her notebook

    def test_a_folder_that_cannot_be_opened_is_told_of(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lay(tmp_path, ["ann/x.ipynb", "bob/x.ipynb"])
        scan = os.scandir

        def closed(path: Path) -> object:
            if path.name == "bob":
                raise PermissionError(13, "Permission denied")
            return scan(path)

        monkeypatch.setattr(os, "scandir", closed)
        assert trouble(find(tmp_path)) == {
            "bob": "it is a folder that cannot be opened (Permission denied)"
        }

    def test_nothing_at_all_is_one_sentence(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="no folder and no zip"):
            find(tmp_path / "nowhere")
        with pytest.raises(ValueError, match=r"there is no .ipynb file in"):
            find(tmp_path)
        (tmp_path / "a.zip").write_bytes(b"no zip")
        with pytest.raises(ValueError, match=r"a.zip: it is no zip, or a damaged one; (.*)") as e:
            find(tmp_path / "a.zip")
        # to whoever downloaded the class, not to the student who handed one in
        assert "download it again" in str(e.value)
        assert "hand in" not in str(e.value)


class TestZips:
    def one(self, tmp_path: Path, data: bytes) -> list[Submission]:
        (tmp_path / "ann.zip").write_bytes(data)
        return find(tmp_path)

    def test_members_are_read_in_place_also_of_zips_in_zips(self, tmp_path: Path) -> None:
        inner = zipped(
            {
                "deep/y.ipynb": b"Y",
                "__MACOSX/._y.ipynb": b"",
                "deep/.ipynb_checkpoints/y.ipynb": b"",
            }
        )
        found = self.one(tmp_path, zipped({"x.ipynb": b"X", "more.zip": inner}))
        assert {s.name: s.read() for s in found} == {
            "ann.zip/x.ipynb": b"X",
            "ann.zip/more.zip/deep/y.ipynb": b"Y",
        }
        assert [p.name for p in tmp_path.iterdir()] == ["ann.zip"]
        assert pickle.loads(pickle.dumps(found)) == found

    def test_a_fourth_zip_in_a_zip_is_not_opened(self, tmp_path: Path) -> None:
        data = NOTEBOOK
        for n in range(4):
            data = zipped({f"{n}.zip" if n else "x.ipynb": data})
        assert "in a zip in a zip" in str(trouble(self.one(tmp_path, data)))

    @pytest.mark.parametrize(
        "name", ["../../x.ipynb", "/x.ipynb", "..\\..\\x.ipynb", "\\x.ipynb", "./../x.ipynb"]
    )
    def test_a_name_leads_nowhere_outside(self, tmp_path: Path, name: str) -> None:
        (found,) = self.one(tmp_path, zipped({name: b"X"}))
        assert (found.name, found.read()) == ("ann.zip/x.ipynb", b"X")

    def test_names_that_become_the_same_stay_distinct(self, tmp_path: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = zipped(
                [("x.ipynb", b"1"), ("x.ipynb", b"2"), ("/x.ipynb", b"3"), ("x (2).ipynb", b"4")]
            )
        found = self.one(tmp_path, data)
        assert {s.name.removeprefix("ann.zip/"): s.read() for s in found} == {
            "x.ipynb": b"1",
            "x (3).ipynb": b"2",
            "x (4).ipynb": b"3",
            "x (2).ipynb": b"4",
        }

    def test_control_characters_and_foreign_letters_in_names(self, tmp_path: Path) -> None:
        marked = zipped({"zoë.ipynb": b"", "a\nb\x1b.ipynb": b""})
        unmarked = marked.replace("zoë".encode(), "zoë".encode())
        flags = bytearray(unmarked)
        for signature, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
            start = flags.find(signature)
            flags[start + at + 1] &= ~0x08  # as old programs on a Mac write it
        assert {s.name for s in self.one(tmp_path, bytes(flags))} == {
            "ann.zip/zoë.ipynb",
            "ann.zip/a�b�.ipynb",
        }

    def test_a_bomb_is_cut_off_at_the_size_of_a_notebook(self, tmp_path: Path) -> None:
        (found,) = self.one(tmp_path, zipped({"x.ipynb": bytes(100 * 2**20)}))
        tracemalloc.start()
        assert len(found.read()) == MAX_BYTES + 1
        assert tracemalloc.get_traced_memory()[1] < 6 * MAX_BYTES  # of 100 MiB
        tracemalloc.stop()

    def test_a_bomb_of_zips_is_cut_off(self, tmp_path: Path) -> None:
        tracemalloc.start()
        found = self.one(tmp_path, zipped({"b.zip": bytes(80 * 2**20), "x.ipynb": b"X"}))
        assert tracemalloc.get_traced_memory()[1] < 4 * archives.INNER_BYTES
        tracemalloc.stop()
        assert "larger than 32 MiB" in trouble(found)["ann.zip/b.zip"]
        assert found[1].read() == b"X"

    def test_all_zips_in_a_zip_together_have_a_limit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inner = zipped({"x.ipynb": random.Random(1).randbytes(40_000)})
        monkeypatch.setattr(archives, "INNER_TOTAL", 100_000)
        found = self.one(tmp_path, zipped({f"{n}.zip": inner for n in range(5)}))
        assert [bool(s.trouble) for s in found] == [False, False, True, True, True]

    def test_thousands_of_members_are_refused_and_cost_no_memory(self, tmp_path: Path) -> None:
        assert "too many files" in str(
            trouble(self.one(tmp_path, zipped({f"{n}.txt": b"" for n in range(6_000)})))
        )
        many = zipped({f"{n}{'x' * 200}.txt": b"" for n in range(5_000)})
        assert "too many files" in str(
            trouble(self.one(tmp_path, many))
        )  # a directory of more than a MiB
        crowd = self.one(tmp_path, zipped({f"{n}.ipynb": b"" for n in range(101)}))
        assert "a zip with 101 notebooks, more than 100" in trouble(crowd)["ann.zip"]
        assert len(find(tmp_path / "ann.zip")) == 101  # as the argument it is a class

    def test_a_zip_of_zips_of_members_is_counted_as_a_whole(self, tmp_path: Path) -> None:
        inner = zipped({f"{n}.txt": b"" for n in range(1_000)})
        found = trouble(self.one(tmp_path, zipped({f"{n}.zip": inner for n in range(8)})))
        assert sum("too many files" in t for t in found.values()) == 4

    def test_each_kind_of_damage_is_one_sentence(self, tmp_path: Path) -> None:
        good = zipped({"x.ipynb": NOTEBOOK * 50})
        encrypted, lying, wrong = bytearray(good), bytearray(good), bytearray(good)
        directory = good.find(b"PK\1\2")
        for at in (6, directory + 8):
            encrypted[at] |= 1
        lying[directory + 24 : directory + 28] = struct.pack(
            "<I", 10
        )  # it says that it is 10 bytes long
        wrong[directory - 20] ^= 0xFF
        link = zipfile.ZipInfo("x.ipynb")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as z:
            z.writestr(link, "/etc/passwd")
        for data, says in (
            (bytes(encrypted), "encrypted"),
            (bytes(lying), "damaged in its zip"),
            (bytes(wrong), "damaged in its zip"),
            (made.getvalue(), "links are not followed"),
            (good[:-30], "no zip, or a damaged one"),
            (good[: len(good) // 2], "no zip, or a damaged one"),
            (b"", "no zip, or a damaged one"),
            (zipped({"x.ipynb": NOTEBOOK}, zipfile.ZIP_BZIP2), "not supported"),
            (zipped({"x.ipynb": NOTEBOOK}, zipfile.ZIP_LZMA), "not supported"),
        ):
            (found,) = self.one(tmp_path, data)
            assert says in why(found)

    def test_zip64_is_an_ordinary_zip(self, tmp_path: Path) -> None:
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as z, z.open("x.ipynb", "w", force_zip64=True) as f:
            f.write(NOTEBOOK)
        assert self.one(tmp_path, made.getvalue())[0].read() == NOTEBOOK

    def test_links_pipes_and_folders_that_are_called_zips(self, tmp_path: Path) -> None:
        lay(tmp_path, {"real/x.zip": zipped({"x.ipynb": NOTEBOOK}), "folder.zip/x.ipynb": NOTEBOOK})
        (tmp_path / "link.zip").symlink_to(tmp_path / "real/x.zip")
        (tmp_path / "linked").symlink_to(tmp_path / "real")
        os.mkfifo(tmp_path / "pipe.zip")
        found = {s.name: s.trouble for s in find(tmp_path)}
        assert found["real/x.zip/x.ipynb"] == found["folder.zip/x.ipynb"] == ""
        assert "links are not followed" in found["link.zip"]
        assert "no file" in found["pipe.zip"]
        assert not any(name.startswith("linked/") for name in found)

    def test_a_zip_that_changes_after_it_was_found_is_one_sentence(self, tmp_path: Path) -> None:
        found = self.one(tmp_path, zipped({"a.txt": b"", "x.ipynb": b""}))
        (tmp_path / "ann.zip").write_bytes(zipped({"a.txt": b""}))
        assert "has changed" in why(found[0])


PARTS = st.sampled_from(
    [
        "a",
        "b.ipynb",
        "c.IPYNB",
        "d.py",
        "e.zip",
        "submissions",
        "x_1_2_y.ipynb",
        "Q_7_assignsubmission_file_",
        "s+h",
    ]
)
PATHS = st.lists(
    st.lists(PARTS, min_size=1, max_size=4).map(tuple), min_size=1, max_size=12, unique=True
)


def tree(paths: list[tuple[str, ...]]) -> dict[str, bytes]:
    """Those paths that can be files together: none is a folder of another, and none lies below one
    that is named like a notebook."""
    files = {p for p in paths if not any(q[: len(p)] == p and q != p for q in paths)}
    return {
        "/".join(p): NOTEBOOK
        for p in sorted(files)
        if not any(x.lower().endswith(".ipynb") for x in p[:-1])
    }


class TestAnythingAtAll:
    @BROKEN
    @given(PATHS, st.randoms(use_true_random=False))
    def test_every_notebook_of_any_tree_is_found_once_whatever_the_order_on_the_disk(
        self, tmp_path: Path, paths: list[tuple[str, ...]], order: random.Random
    ) -> None:
        files = tree(paths)
        shutil.rmtree(tmp_path / "in", ignore_errors=True)
        lay(tmp_path / "in", files)
        try:
            found = find(tmp_path / "in")
        except ValueError:
            assert not any(f.lower().endswith((".ipynb", ".zip")) for f in files)
            return
        assert sorted(s.name for s in found if not s.trouble) == sorted(
            f for f in files if f.lower().endswith(".ipynb")
        )
        assert {f for f in files if f.endswith(".zip")} <= {
            s.name for s in found
        }  # they are no zips, and are told of
        assert len({s.name for s in found}) == len(found)
        shuffled = list(files.items())
        order.shuffle(shuffled)
        shutil.rmtree(tmp_path / "in")
        lay(tmp_path / "in", dict(shuffled))
        assert find(tmp_path / "in") == found

    @BROKEN
    @given(PATHS)
    def test_every_notebook_of_any_zip_is_found_once(
        self, tmp_path: Path, paths: list[tuple[str, ...]]
    ) -> None:
        files = {"/".join(p): NOTEBOOK for p in paths}
        (tmp_path / "a.zip").write_bytes(zipped(files))
        wanted = [n for n, f in enumerate(files) if f.lower().endswith(".ipynb")]
        try:
            found = find(tmp_path / "a.zip")
        except ValueError:
            assert not any(f.lower().endswith((".ipynb", ".zip")) for f in files)
            return
        assert sorted(s.members[0] for s in found if not s.trouble) == wanted
        assert len({s.name for s in found}) == len(found)

    @draws(300, HealthCheck.function_scoped_fixture)
    @given(st.data())
    def test_bytes_that_were_once_a_zip_never_raise_but_a_sentence(
        self, tmp_path: Path, data: st.DataObject
    ) -> None:
        inner = zipped({"y.ipynb": NOTEBOOK, "z.txt": b"z" * 50})
        good = bytearray(zipped({"x.ipynb": NOTEBOOK, "inner.zip": inner}))
        for _ in range(data.draw(st.integers(1, 6))):
            good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
        (tmp_path / "a.zip").write_bytes(bytes(good))
        self.every_one_reads_or_says_why(tmp_path)

    @BROKEN
    @given(st.binary(max_size=300), st.booleans())
    def test_any_bytes_are_no_more_than_an_unreadable_zip(
        self, tmp_path: Path, junk: bytes, ended: bool
    ) -> None:
        (tmp_path / "a.zip").write_bytes(
            junk + (b"PK\5\6" + junk[:18].ljust(18, b"\0") if ended else b"")
        )
        self.every_one_reads_or_says_why(tmp_path)

    def every_one_reads_or_says_why(self, folder: Path) -> None:
        found = find(folder)  # the zip itself, at least
        assert found
        for submission in found:
            with contextlib.suppress(Unreadable):
                assert len(submission.read()) <= MAX_BYTES + 1
