"""What has to be installed where the grader runs: its packages and all that these need, each at the
version that is here. Markers are decided as in a container on Linux, whatever system this is.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

# what the grader imports, and all of the package that a notebook can
ROOTS = (
    *("torch", "numpy", "numba", "safetensors", "tokenizers"),
    *("matplotlib", "ipython", "PyYAML", "jinja2", "rich"),
)
THERE = {
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
    "platform_machine": "x86_64",
}
# torch for CPUs needs none of these, and its metadata here may ask for them
OF_A_GPU = ("nvidia-", "cuda-", "triton")


def versions() -> dict[str, str]:
    """Package -> version: ROOTS and all that they need. Raises ValueError if one is not here."""
    found: dict[str, str] = {}
    todo = [(name, frozenset[str]()) for name in ROOTS]
    seen = set(todo)
    while todo:
        name, extras = todo.pop()
        try:
            package = distribution(name)
        except PackageNotFoundError:
            raise ValueError(
                f"{name} is not installed here, and the autograder needs it: install"
                " requirements.txt first"
            ) from None
        # without a local part such as +cpu
        found[canonicalize_name(name)] = Version(package.version).public
        for line in package.requires or ():
            need = _needed(Requirement(line), extras)
            if need and need not in seen:
                seen.add(need)
                todo.append(need)
    return found


def _needed(need: Requirement, extras: frozenset[str]) -> tuple[str, frozenset[str]] | None:
    name = canonicalize_name(need.name)
    if name.startswith(OF_A_GPU):
        return None
    wanted = need.marker is None or any(
        need.marker.evaluate(THERE | {"extra": e}) for e in ("", *extras)
    )
    return (name, frozenset(need.extras)) if wanted else None


def lines() -> tuple[str, list[str]]:
    """As pip writes it: the line for torch, which has an index of its own; all others, sorted."""
    found = versions()
    torch = found.pop("torch")
    return f"torch=={torch}", [f"{name}=={version}" for name, version in sorted(found.items())]
