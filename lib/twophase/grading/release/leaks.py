"""Whether a release gives anything away. It looks at the files as written, and knows nothing of how
they were made.

A line is hidden if it stands between the marks of a model solution, or in a held-back module, and
nowhere in what is public: the course's package, the instructor's public modules, the tasks and
stubs of the notebooks. Public checks have references, so a line of an answer that is also in one of
them is no secret.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from twophase.checks.registry import Catalog
from twophase.grading.files.notebook import raw_cells, source_of
from twophase.grading.release.compose import BEGIN, END, cells_of

# beside the package
AS_THEY_ARE = "requirements.txt", "constraints.txt", "pyproject.toml", "LICENSE"
# signs: a shorter line must be a whole line to be found, or `return x` would be everywhere
SHORT = 16
# folders that no release has
NEVER = "solutions", "tests", "bench", "book", "scratch", "my", ".git"


def found(
    files: Mapping[str, bytes], catalog: Catalog, notebooks: Iterable[Path], secret: bytes = b""
) -> Iterator[str]:
    """A sentence for everything in the release that must not be there.

    `notebooks` are all model solutions, the folders' included; `secret` is the course's.
    """
    for name, data in files.items():
        if name.split("/")[0] in NEVER:
            yield f"{name} is in a folder that students do not get"
        if name.endswith(".ipynb"):
            yield from _of_notebook(name, data)
        if secret and any(s in data for s in _spellings(secret)):
            yield f"{name} has the course's secret in it"
    yield from _lines(files, catalog, list(notebooks))
    if catalog.variants:
        held = {p.read_bytes(): p for p in catalog.variants.modules() if p.stat().st_size}
        for name in (n for n, data in files.items() if data in held):
            yield f"{name} is the held-back file {held[files[name]]}"


def _spellings(secret: bytes) -> list[bytes]:
    spelled = [secret, secret.hex().encode()]
    with contextlib.suppress(ValueError):
        spelled.append(bytes.fromhex(secret.decode("ascii")))
    return spelled


def _of_notebook(name: str, data: bytes) -> Iterator[str]:
    for cell in raw_cells(data):
        if cell.get("outputs") or cell.get("execution_count") is not None:
            yield f"{name} has the output of a run"
        if BEGIN in source_of(cell) or END in source_of(cell):
            yield f"{name} has a model solution's marks"


def _lines(files: Mapping[str, bytes], catalog: Catalog, notebooks: list[Path]) -> Iterator[str]:
    """A sentence for every hidden line that is somewhere in the release."""
    hidden, public = set[str](), list[str]()
    for path in notebooks:
        for cell in cells_of(path):
            inside, outside = divided(source_of(cell))
            hidden |= {line.strip() for line in inside}
            public += outside
    for module in catalog.variants.modules() if catalog.variants else ():
        hidden |= {line.strip() for line in module.read_text(encoding="utf-8").splitlines()}
    made = {
        n: _decoded(n, d)
        for n, d in files.items()
        if n.endswith(".ipynb") or ("/" not in n and n not in AS_THEY_ARE)
    }
    copied = (
        d.decode("utf-8", "replace")
        for n, d in files.items()
        if n not in made and not n.endswith(".safetensors")
    )
    everywhere = "\n".join([*public, *copied])
    secret_lines = sorted(
        line for line in hidden if line not in everywhere and any(c.isalpha() for c in line)
    )
    # what is copied as it is has no hidden line: it is what makes a line public
    for name, text in made.items():
        whole = {line.strip() for line in text.splitlines()}
        for line in secret_lines:
            if line in whole or (len(line) >= SHORT and line in text):
                yield f"{name} has a line of a model solution or a held-back check: {line[:80]!r}"


def divided(source: str) -> tuple[list[str], list[str]]:
    """The lines of a cell between the marks of a solution, and all others."""
    inside, outside, within = list[str](), list[str](), False
    for line in source.splitlines():
        if BEGIN in line or END in line:
            within = BEGIN in line
        else:
            (inside if within else outside).append(line)
    return inside, outside


def _decoded(name: str, data: bytes) -> str:
    """A file's text, of a notebook its cells' too: in the JSON a line's end is written as \\n."""
    if name.endswith(".ipynb"):
        return "\n".join(source_of(c) for c in raw_cells(data)) + "\n" + data.decode("utf-8")
    return data.decode("utf-8", "replace")
