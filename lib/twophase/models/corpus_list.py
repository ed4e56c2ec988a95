"""How `corpus.txt` was chosen: which packages, which files, which duplicates went. Only maintainers
need it."""

import argparse
import hashlib
from importlib import metadata
from pathlib import Path

from twophase.models import corpus

CAP_bytes = 2_400_000  # per package, so that none dominates
SIZES_bytes = range(400, 150_000)  # shorter files say nothing, longer ones are mostly tables

# name, top-level folder, licence. Only packages whose .py files are the same in every wheel of the
# version.
TRAIN = [
    ("sympy", "sympy", "BSD-3-Clause"),
    ("matplotlib", "matplotlib", "PSF-based (Matplotlib)"),
    ("networkx", "networkx", "BSD-3-Clause"),
    ("Pygments", "pygments", "BSD-2-Clause"),
    ("Sphinx", "sphinx", "BSD-2-Clause"),
    ("docutils", "docutils", "public domain, BSD-2-Clause, PSF-2.0"),
    ("ipython", "IPython", "BSD-3-Clause"),
    ("fonttools", "fontTools", "MIT"),
    ("SQLAlchemy", "sqlalchemy", "MIT"),
    ("mpmath", "mpmath", "BSD-3-Clause"),
    ("hypothesis", "hypothesis", "MPL-2.0"),
    ("mypy", "mypy", "MIT"),
    ("pytest", "_pytest", "MIT"),
    ("jupytext", "jupytext", "MIT"),
    ("nbclient", "nbclient", "BSD-3-Clause"),
    ("nbformat", "nbformat", "BSD-3-Clause"),
    ("ipykernel", "ipykernel", "BSD-3-Clause"),
    ("jupyterlab", "jupyterlab", "BSD-3-Clause"),
    ("myst-parser", "myst_parser", "MIT"),
    ("myst-nb", "myst_nb", "BSD-3-Clause"),
    ("typer", "typer", "MIT"),
]
HELD_OUT = [
    ("rich", "rich", "MIT"),
    ("jedi", "jedi", "MIT"),
    ("nbgrader", "nbgrader", "BSD-3-Clause"),
]
# Vendored copies, generated files, files that installers write or patch.
SKIP = (
    "/tests/",
    "/testing/",
    "/third_party/",
    "/_vendor/",
    "/_antlr/",
    "/_unicode_data/",
    "/typeshed/",
    "/stemmer/",
)
SKIP_NAMES = ("_version.py", "version.py", "_emoji_codes.py", "roman.py")


def looks_written(data: bytes) -> bool:
    """Prose and code, not a table: few digits, few bytes outside ASCII, lines of a length that
    people write."""
    digits = sum(data.count(b"%d" % d) for d in range(10))
    odd = sum(byte > 126 or byte == 0 for byte in data)
    lines = data.count(b"\n") + 1
    return (
        digits < 0.12 * len(data)
        and odd < 0.01 * len(data)
        and 0 not in data
        and len(data) < 80 * lines
    )


def candidates(name: str, folder: str) -> list[tuple[str, bytes]]:
    """Path and bytes of every acceptable file of a package, in the order of their hashes (a fixed
    shuffle)."""
    root = Path(str(metadata.distribution(name).locate_file("")))
    found = []
    for path in sorted((root / folder).rglob("*.py")):
        relative = path.relative_to(root).as_posix()
        data = path.read_bytes()
        if (
            len(data) in SIZES_bytes
            and path.name not in SKIP_NAMES
            and not any(s in f"/{relative}" for s in SKIP)
        ):
            found.append((relative, data))
    return sorted(
        ((p, d) for p, d in found if looks_written(d)),
        key=lambda pd: hashlib.sha256(pd[1]).digest(),
    )


def long_lines(data: bytes) -> set[bytes]:
    """The lines that say something: those of 25 bytes or more, without indentation."""
    return {line for raw in data.splitlines() if len(line := raw.strip()) >= 25}


def choose() -> list[tuple[str, str, str, list[tuple[str, bytes]]]]:
    """(name, split, licence, files) of every package: held-out ones first, then training files that
    share little with them."""
    seen: set[bytes] = set()
    held_lines: set[bytes] = set()
    chosen = []
    for split, group in (("held_out", HELD_OUT), ("train", TRAIN)):
        for name, folder, licence in group:
            files, total = [], 0
            for path, data in candidates(name, folder):
                lines = long_lines(data)
                shared = len(lines & held_lines) if split == "train" else 0
                if data in seen or total + len(data) > CAP_bytes or shared > 0.3 * len(lines):
                    continue
                seen.add(data)
                total += len(data)
                files.append((path, data))
            if split == "held_out":
                held_lines |= set().union(*(long_lines(data) for _, data in files))
            chosen.append((name, split, licence, sorted(files)))
    return chosen


def write(target: Path) -> None:
    """Write the list from the installed packages."""
    lines = [
        "# The training corpus: made by `python -m twophase.models.corpus --write`; see"
        " corpus_list.py."
    ]
    lines.append(
        "# package <name> <version> <split> <licence>, then <sha256, first 16 digits> <bytes>"
        " <path>"
    )
    for name, split, licence, files in choose():
        lines.append(f"package {name} {metadata.version(name)} {split} {licence}")
        for path, data in files:
            lines.append(
                f"{hashlib.sha256(data).hexdigest()[: corpus.HASH_DIGITS]} {len(data)} {path}"
            )
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    corpus.packages.cache_clear()


def main() -> None:
    """Check the corpus on this machine, or write its list anew."""
    parser = argparse.ArgumentParser(description="Check the training corpus, file by file.")
    parser.add_argument(
        "--write",
        action="store_true",
        help="make the list from what is installed (for maintainers)",
    )
    if parser.parse_args().write:
        write(corpus.LIST)
    for package in corpus.packages():
        size = sum(f.size for f in package.files)
        print(
            f"{package.split:9} {package.name}=={package.version}: {len(package.files)} files,"
            f" {size:,} bytes"
        )
    for split in ("train", "held_out"):
        print(f"{split}: {len(corpus.load(split)):,} bytes, all as listed")


if __name__ == "__main__":
    main()
