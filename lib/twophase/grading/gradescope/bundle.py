"""The zip that an instructor uploads to Gradescope: the grader, and what it grades against.

- setup.sh, run_autograder, requirements.txt, provisional.json: as in `files/`.
- `lib/twophase/`: the package's Python files; no weights, no corpus, no tests.
- `private/`, what no submission may read: config.json, the released notebooks, the secret, the
  instructor's own checks and held-back exercises.

The course's model solutions are not in it; those of an instructor's folder only if there is no
release to take the tasks from. The same settings and files give the same bytes.
"""

from __future__ import annotations

import io
import platform
import stat
import zipfile
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import twophase
from twophase.checks import manifest
from twophase.grading.course import secret
from twophase.grading.errors import writing
from twophase.grading.files.atomic import replacing
from twophase.grading.gradescope import requirements
from twophase.grading.gradescope.config import PRIVATE, Config
from twophase.grading.release.release import Source, course_root
from twophase.grading.sandbox.limits import Limits

FILES = Path(__file__).with_name("files")
SCRIPT, FILE, OURS_ONLY = 0o755, 0o644, 0o600
# for the start, beside what the submission may take and wait; all of it within Gradescope's 10
# minutes
MARGIN_S = 60
MOST_S = 540  # unless the submission's own time is longer than Gradescope's


@dataclass(frozen=True)
class Member:
    """A file of the zip."""

    data: bytes
    mode: int = FILE


def build(config: Config, source: Source, secret_file: Path | None = None) -> bytes:
    """The zip's bytes. Raises ValueError for whatever is wrong with what it is made of."""
    if config.topic and config.topic not in source.topics():
        raise ValueError(
            f"there is no topic {config.topic!r}; the topics are {', '.join(source.topics())}"
        )
    source.validate()
    tasks_here = source.folder() is None  # else they are in the release
    members = _scripts(config) | _package() | _notebooks(config, source)
    for n, folder in enumerate(source.checks):
        members |= _folder(folder, f"{PRIVATE}/checks/{n}", tasks_here)
    if source.variants is not None:
        members |= _folder(source.variants, f"{PRIVATE}/variants", tasks_here)
    if secret_file is not None:
        members[f"{PRIVATE}/secret"] = Member(secret.read_secret(secret_file), OURS_ONLY)
    config = replace(
        config,
        checks=tuple(f"checks/{n}" for n, _ in enumerate(source.checks)),
        variants="variants" if source.variants else "",
        release="release" if source.folder() else "",
    )
    members[f"{PRIVATE}/config.json"] = Member(config.to_bytes(), OURS_ONLY)
    return _zipped(members)


def _scripts(config: Config) -> dict[str, Member]:
    torch, others = requirements.lines()
    python = ".".join(platform.python_version_tuple()[:2])
    seconds = f"{_seconds(config.submission_s):g}"
    fill = {"@PYTHON@": python, "@TORCH@": torch, "@SECONDS@": seconds}
    return {
        "setup.sh": Member(_filled("setup.sh", fill), SCRIPT),
        "run_autograder": Member(_filled("run_autograder.sh", fill), SCRIPT),
        "provisional.json": Member(_filled("provisional.json", {})),
        "requirements.txt": Member(("\n".join(others) + "\n").encode("ascii")),
    }


def _seconds(submission_s: float) -> float:
    """After how long the grader is ended, so that it can say so before Gradescope ends it."""
    own_s = submission_s + MARGIN_S
    return max(own_s, min(own_s + Limits.waiting_s, MOST_S))


def _filled(name: str, fill: dict[str, str]) -> bytes:
    text = (FILES / name).read_text(encoding="utf-8")
    for mark, value in fill.items():
        text = text.replace(mark, value)
    return text.encode("utf-8")


def _package() -> dict[str, Member]:
    """All Python files, so that the library's digest is the same there, and the version."""
    root = Path(twophase.__path__[0])
    members = {
        f"lib/twophase/{p.relative_to(root).as_posix()}": Member(p.read_bytes())
        for p in root.rglob("*.py")
    }
    try:
        number = version("twophase")
    except PackageNotFoundError:
        return members
    metadata = f"Metadata-Version: 2.1\nName: twophase\nVersion: {number}\n"
    return members | {f"lib/twophase-{number}.dist-info/METADATA": Member(metadata.encode("ascii"))}


def _notebooks(config: Config, source: Source) -> dict[str, Member]:
    """The notebooks as they were released, which say what is asked and which cells are locked."""
    released = source.folder()
    room = (released or course_root()) / "exercises"
    stems = [source.catalog().stem(t) for t in source.topics() if config.topic in ("", t)]
    paths = [p for p in (room / f"{stem}.ipynb" for stem in stems) if p.is_file()]
    place = f"{PRIVATE}/release" if released else PRIVATE
    members = {f"{place}/exercises/{p.name}": Member(p.read_bytes(), OURS_ONLY) for p in paths}
    if released:
        stated = (released / manifest.FILE_NAME).read_bytes()
        members[f"{place}/{manifest.FILE_NAME}"] = Member(stated, OURS_ONLY)
    return members


def _folder(folder: Path, place: str, with_notebooks: bool) -> dict[str, Member]:
    """An instructor's folder of exercises; its notebooks, with model answers, only if needed."""
    members = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        inside = path.relative_to(folder)
        kept = path.suffix == ".py" or (with_notebooks and path.suffix == ".ipynb")
        if kept and not any(part.startswith((".", "__pycache__")) for part in inside.parts):
            members[f"{place}/{inside.as_posix()}"] = Member(path.read_bytes(), OURS_ONLY)
    return members


def _zipped(members: dict[str, Member]) -> bytes:
    """Sorted, of one time, with the modes: the same bytes for the same members."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system = 3  # Unix: the modes count
            info.external_attr = (stat.S_IFREG | members[name].mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, members[name].data)
    return packed.getvalue()


def save(path: Path, data: bytes) -> bool:
    """Write the zip; False if it is there already. Raises ValueError if another file is there,
    CannotWrite."""
    if path.exists() or path.is_symlink():
        if path.is_file() and path.read_bytes() == data:
            return False
        raise ValueError(
            f"{path} is there already and is another; move it away, or give another --out"
        )
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent}; make it, or give another --out")
    # nobody else reads it, not even while it is written: it may hold the secret
    with writing(path), replacing(path, OURS_ONLY) as file:
        file.write(data)
    return True


def unpack(path: Path, folder: Path) -> None:
    """The zip's files below `folder`, with their modes, as at Gradescope. Raises ValueError."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {i.filename for i in archive.infolist()}
            if not {"setup.sh", "run_autograder", f"{PRIVATE}/config.json"} <= names:
                raise ValueError(
                    f"{path} is no autograder; make one with `twophase gradescope build`"
                )
            for info in archive.infolist():
                archive.extract(info, folder)
                (folder / info.filename).chmod(info.external_attr >> 16 & 0o777)
    except FileNotFoundError:
        raise ValueError(
            f"there is no file {path}; make it with `twophase gradescope build --out {path}`"
        ) from None
    except zipfile.BadZipFile:
        raise ValueError(f"{path} is no zip; make one with `twophase gradescope build`") from None
