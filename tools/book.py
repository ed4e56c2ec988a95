"""Build the book: `.venv/bin/python tools/book.py`, which is what `make book` calls.

Chapters are executed and their outputs kept in `_build/.jupyter_cache`. That cache looks at the
text of the cells only, so this script clears it whenever something else a chapter may use has
changed: the package, its data, the pins. When nothing at all has changed since the last good build,
there is nothing to do. `--force` builds anyway, `--fresh` executes everything again.

`--with book/05_topic` builds a page that is not in `_toc.yml` yet (and its notebook, if there is
one) beside all others, into a folder of its own, `_build/with-05_topic/_build/html`, with a cache
of its own: for writing a chapter without touching the book.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "_build"
PAGES = BUILD / "html" / "index.html"
# What a cell's output may depend on, besides the cell.
BEHIND_CELLS = ["lib", "requirements.txt", "constraints.txt"]
# What the pages are made of, besides that.
PAGES_OF = ["_config.yml", "_toc.yml", "book", "exercises", "tools/book.py"]
IGNORED = {"__pycache__", ".ipynb_checkpoints", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


def files(places: Iterable[str], root: Path = ROOT) -> list[Path]:
    """Every file under the places, sorted, without caches and build leftovers."""
    found = []
    for place in places:
        path = root / place
        found += [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sorted(
        p
        for p in found
        if not IGNORED & set(p.parts) and ".egg-info" not in str(p) and p.suffix != ".pyc"
    )


def fingerprint(places: Iterable[str], root: Path = ROOT) -> str:
    """A hash of names and contents; this Python's version is part of it."""
    total = hashlib.sha256(sys.version.encode())
    for path in files(places, root):
        total.update(str(path.relative_to(root)).encode() + b"\0")
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def kept(name: str) -> str:
    path = BUILD / name
    return path.read_text() if path.exists() else ""


def keep(name: str, value: str) -> None:
    BUILD.mkdir(exist_ok=True)
    (BUILD / name).write_text(value)


def build(*more: str) -> int:
    """Run jupyter-book with warnings as errors; its exit status."""
    beside = Path(sys.executable).parent / "jupyter-book"
    program = str(beside) if beside.exists() else "jupyter-book"
    command = [program, "build", str(ROOT), "-W", "-n", "--keep-going", "--all", *more]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def contents_with(page: str) -> str:
    """`_toc.yml` with the page and its notebook added, unless they are there. ValueError if the
    page does not exist."""
    if not (ROOT / f"{page}.md").exists():
        raise ValueError(f"there is no page {page}.md")
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))
    notebook = page.replace("book/", "exercises/", 1)
    entry: dict[str, Any] = {"file": page}
    if (ROOT / f"{notebook}.ipynb").exists():
        entry["sections"] = [{"file": notebook}]
    if f"'{page}'" not in str(contents):
        contents["parts"].insert(
            0, {"caption": "Being written", "numbered": 1, "chapters": [entry]}
        )
    return yaml.safe_dump(contents, sort_keys=False)


def build_with(page: str) -> int:
    """Build the book with one more page, apart from the book itself."""
    page = page.removesuffix(".md")
    folder = BUILD / f"with-{Path(page).stem}"
    contents = folder / "_toc.yml"
    text = contents_with(page)
    folder.mkdir(parents=True, exist_ok=True)
    contents.write_text(text, "utf8")
    behind = fingerprint(BEHIND_CELLS)
    if kept(f"{folder.name}/cells.hash") != behind:
        shutil.rmtree(folder / "_build" / ".jupyter_cache", ignore_errors=True)
        keep(f"{folder.name}/cells.hash", behind)
    status = build("--toc", str(contents), "--path-output", str(folder))
    print(
        f"\n{'Built' if status == 0 else 'Not clean, see above'}:"
        f" {folder / '_build' / 'html' / page}.html"
    )
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the book into _build/html.")
    parser.add_argument("--force", action="store_true", help="build even if nothing has changed")
    parser.add_argument("--fresh", action="store_true", help="execute every chapter again")
    parser.add_argument(
        "--with",
        dest="page",
        metavar="PAGE",
        help="build with a page that is not in the contents yet",
    )
    options = parser.parse_args()
    if options.page:
        return build_with(options.page)
    started = time.monotonic()
    behind, everything = fingerprint(BEHIND_CELLS), fingerprint([*BEHIND_CELLS, *PAGES_OF])
    if not (options.force or options.fresh) and kept("book.hash") == everything and PAGES.exists():
        print(f"Nothing has changed since the last build.\n\nOpen {PAGES}")
        return 0
    if options.fresh or kept("cells.hash") != behind:
        shutil.rmtree(BUILD / ".jupyter_cache", ignore_errors=True)
        keep("cells.hash", behind)
    shutil.rmtree(BUILD / "html", ignore_errors=True)
    status = build()
    keep("book.hash", everything if status == 0 else "")
    if status:
        print("\nThe book was not built cleanly: see the warnings above.", file=sys.stderr)
        return status
    print(f"\nBuilt in {time.monotonic() - started:.0f} s.\n\nOpen {PAGES}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
