"""The training corpus: Python source that every reader already has, byte for byte the same.

`corpus.txt` beside this file lists files of exactly pinned packages of requirements.txt with size
and SHA-256. Bytes are tokens (V = 256); a zero byte ends each file. Some packages are held out
whole, for validation; files that the two sides share were removed when the list was made. `python
-m twophase.models.corpus` checks every file; `--write` makes the list anew from what is installed
(for maintainers).
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np

LIST: Path = Path(__file__).with_name("corpus.txt")
END = 0  # the token after each file
HASH_DIGITS = 16  # hex digits kept of each file's SHA-256: 64 bits, enough against accidents


@dataclass(frozen=True)
class Source:
    """One file of the corpus."""

    path: str  # inside site-packages
    size: int  # bytes
    sha256: str  # the first HASH_DIGITS hex digits


@dataclass(frozen=True)
class Package:
    """One distribution, with the files that are read from it."""

    name: str
    version: str
    split: str  # "train" or "held_out"
    licence: str
    files: tuple[Source, ...]


@cache
def packages(list_path: Path = LIST) -> tuple[Package, ...]:
    """What the list says, in its order. Reads no package."""
    found: list[tuple[list[str], list[Source]]] = []
    for line in list_path.read_text(encoding="utf-8").splitlines():
        if line.startswith("package "):
            found.append((line.split(maxsplit=4)[1:], []))
        elif line and not line.startswith("#"):
            sha256, size, path = line.split(maxsplit=2)
            found[-1][1].append(Source(path, int(size), sha256))
    return tuple(Package(*head, tuple(files)) for head, files in found)  # type: ignore[call-arg, arg-type]


def digest(list_path: Path = LIST) -> str:
    """SHA-256 of the list: one number that stands for every byte of the corpus."""
    return hashlib.sha256(list_path.read_bytes()).hexdigest()


def load(split: str, list_path: Path = LIST) -> np.ndarray:
    """All bytes of a split, "train" or "held_out", as uint8 [n_tokens]; every file is checked
    against the list.

    Raises ValueError, in one sentence, if a package is missing, has another version, or a file
    differs.
    """
    if split not in ("train", "held_out"):
        raise ValueError(f'the corpus has the splits "train" and "held_out"; got "{split}".')
    chunks = [
        data + bytes([END]) for p in packages(list_path) if p.split == split for data in _read(p)
    ]
    return np.frombuffer(b"".join(chunks), dtype=np.uint8)


def _read(package: Package) -> list[bytes]:
    pin = f"{package.name}=={package.version}"
    remedy = f"reinstall it with `pip install --force-reinstall --no-deps {pin}`"
    try:
        installed = metadata.distribution(package.name)
    except metadata.PackageNotFoundError:
        raise ValueError(
            f"the training corpus reads {pin}, which is not installed: run `pip install {pin}`."
        ) from None
    if installed.version != package.version:
        raise ValueError(
            f"the training corpus reads {pin}, but {package.name} {installed.version} is installed:"
            f" {remedy}."
        )
    contents = []
    for source in package.files:
        path = Path(str(installed.locate_file(source.path)))
        data = path.read_bytes() if path.is_file() else b""
        if (
            len(data) != source.size
            or hashlib.sha256(data).hexdigest()[:HASH_DIGITS] != source.sha256
        ):
            raise ValueError(
                f"the training corpus reads {pin}, but its file {source.path} is not the released"
                f" one: {remedy}."
            )
        contents.append(data)
    return contents


if __name__ == "__main__":
    from twophase.models.corpus_list import main

    main()
