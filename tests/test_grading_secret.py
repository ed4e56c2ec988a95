"""Seeds from the course's secret: the same everywhere for a student, unknown without the secret,
deaf to the submission."""

from __future__ import annotations

import errno
import inspect
import os
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from patience import PATIENCE_S

from twophase.grading.course import secret

ONE, OTHER = b"one secret of enough bytes", b"another secret, also enough"


def test_a_seed_is_the_same_in_another_process() -> None:
    code = f"from twophase.grading.course import secret; print(secret.seed_of({ONE!r}, 'Ångström'))"
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout.strip() == secret.seed_of(ONE, "Ångström")


def test_another_secret_or_another_set_gives_another_seed() -> None:
    students = [f"s{i}" for i in range(200)]
    assert {secret.seed_of(ONE, s) for s in students}.isdisjoint(
        secret.seed_of(OTHER, s) for s in students
    )
    for student in students[:20]:
        same = secret.case_set(ONE, student) == secret.case_set(ONE, "s0")
        assert (secret.seed_of(ONE, student) == secret.seed_of(ONE, "s0")) == same


def test_students_share_the_sets_about_evenly_and_with_0_sets_share_none() -> None:
    students = [f"student{i}@example.edu" for i in range(1600)]
    sizes = Counter(secret.case_set(ONE, s, 16) for s in students)
    assert set(sizes) == set(range(16))
    assert max(sizes.values()) < 160  # 100 each on average; six standard deviations are 58
    assert len({secret.seed_of(ONE, s, 16) for s in students}) == 16
    assert len({secret.seed_of(ONE, s, 0) for s in students}) == len(students)


def test_a_student_called_like_a_set_does_not_get_that_sets_seed() -> None:
    shared = {secret.seed_of(ONE, f"s{i}") for i in range(100)}
    assert shared.isdisjoint(secret.seed_of(ONE, f"set {n}", 0) for n in range(16))


def test_nothing_of_a_submission_goes_into_a_seed() -> None:
    assert list(inspect.signature(secret.seed_of).parameters) == ["secret", "student", "sets"]


def test_a_secret_is_created_for_its_owner_only_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    secret.create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(bytes.fromhex(path.read_text().strip())) == 32
    assert secret.read_secret(path) == path.read_bytes().rstrip(b"\n")
    secret.create(tmp_path / "another")
    assert secret.read_secret(tmp_path / "another") != secret.read_secret(path)


def test_a_full_disk_leaves_no_half_of_a_secret_in_the_way_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(length: int) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "secret"
    with monkeypatch.context() as m:
        m.setattr(secret.secrets, "token_hex", full)
        with pytest.raises(ValueError, match="cannot be written: No space left on device"):
            secret.create(path)
    secret.create(path)
    assert len(secret.read_secret(path)) == 64


def test_a_secret_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    secret.create(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="never overwritten"):
        secret.create(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("data", "mode", "says"),
    [
        (b"", 0o600, "has 0 bytes"),
        (b"123456789012345\n", 0o600, "has 15 bytes; it needs at least 16"),
        (b"a" * 32, 0o640, "chmod 600"),
        (b"a" * 32, 0o604, "chmod 600"),
        (b"a" * 32, 0o620, "chmod 600"),
        (b"a" * 5000, 0o600, "more than 4096 bytes"),
    ],
)
def test_what_is_no_secret_is_refused_in_a_sentence(
    tmp_path: Path, data: bytes, mode: int, says: str
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(data)
    path.chmod(mode)
    with pytest.raises(ValueError, match=says) as caught:
        secret.read_secret(path)
    assert str(path) in str(caught.value)
    assert "aaaa" not in str(caught.value).replace(str(path), "")


@pytest.mark.parametrize("place", ["nowhere", "folder"])
def test_no_file_at_all_is_a_sentence(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match=place):
        secret.read_secret(tmp_path / place)


def test_no_sets_to_choose_from_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one set"):
        secret.case_set(ONE, "ann", 0)
