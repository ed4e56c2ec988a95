"""Folders and zips as learning platforms make them, for the tests of layouts."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from twophase.grading.intake.submissions import Submission

NOTEBOOK = b'{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
METADATA = """---
submission_801:
  :submitters:
  - :name: Ann Adams
    :sid: '1001'
    :email: ann@x.edu
  :created_at: 2026-10-30 20:14:03.123456789 Z
  :score: 7.0
  :history:
  - :id: 12
    :created_at: 2026-10-29 08:00:00.000000000 Z
submission_802:
  :submitters:
  - :name: Cy Clark
    :sid:
    :email: cy@x.edu
  - :name: Bob Brown
    :sid: '1002'
    :email: bob@x.edu
  :created_at: !ruby/object:ActiveSupport::TimeWithZone
    utc: 2026-10-30 22:30:00.000000000 Z
    zone: !ruby/object:ActiveSupport::TimeZone
      name: Europe/Berlin
    time: 2026-10-31 00:30:00.000000000 Z
submission_803:
  :submitters:
  - :name: Dee Diaz
    :sid: ''
    :email: ''
  :created_at: 2026-10-30 23:00:00 +0200
"""
GRADESCOPE: Mapping[str, bytes] = {
    "submission_metadata.yml": METADATA.encode(),
    "submission_801/03_kv_cache.ipynb": NOTEBOOK,
    "submission_802/answers/03.ipynb": NOTEBOOK,
    "submission_803/report.pdf": b"%PDF",
}
CANVAS: Mapping[str, bytes] = {
    "adamsann_101_9001_03_kv_cache.ipynb": NOTEBOOK,
    "brownbob_LATE_102_9002_03_kv_cache-1.ipynb": NOTEBOOK,
    "clarkcy_103_9003_answers.py": b"print()",
    "diazdee_104_link.html": b"<a>",
}
MOODLE: Mapping[str, bytes] = {
    "Ann Adams_501_assignsubmission_file_/03.ipynb": NOTEBOOK,
    "Bob Brown_502_assignsubmission_file/03.ipynb": NOTEBOOK,
    "Bob Brown_502_assignsubmission_onlinetext_/onlinetext.html": b"<p>",
    "Cy Clark_503_assignsubmission_onlinetext_/onlinetext.html": b"<p>",
}
MOODLE_FLAT: Mapping[str, bytes] = {
    name.replace("_/", "_").replace("file/", "file_"): d for name, d in MOODLE.items()
}


def lay(folder: Path, files: Mapping[str, bytes] | Iterable[str]) -> Path:
    """Write files below a folder; a name alone is a notebook."""
    for name, data in (
        files if isinstance(files, Mapping) else dict.fromkeys(files, NOTEBOOK)
    ).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def zipped(
    files: Mapping[str, bytes] | Iterable[tuple[str, bytes]],
    compression: int = zipfile.ZIP_DEFLATED,
) -> bytes:
    """A zip of these files, in this order; pairs may have a name twice."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as z:
        for name, data in files.items() if isinstance(files, Mapping) else files:
            z.writestr(zipfile.ZipInfo(name), data, compression)
    return made.getvalue()


def seen(found: Iterable[Submission]) -> dict[str, tuple[str, str, bool]]:
    """Name to student, time, and whether there is a notebook."""
    return {s.name: (s.student, s.submitted, not s.trouble) for s in found}
