"""What pyproject.toml says of the package: its dependencies are those that are pinned, and
installed it has all its files."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
WANTED = {
    canonicalize_name(one.name): one
    for one in map(Requirement, chain(PROJECT["dependencies"], *EXTRAS.values()))
    if one.name != "twophase"  # an extra that has another in it
}
PINS = {
    canonicalize_name(name): version
    for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
    for name, version in [re.split("==", line)]
}


def test_what_is_pinned_is_what_the_package_and_its_extras_ask_for() -> None:
    assert sorted(PINS) == sorted(WANTED)


@pytest.mark.parametrize("name", sorted(WANTED))
def test_a_pin_is_within_the_range_that_the_package_allows(name: str) -> None:
    assert PINS[name] in WANTED[name].specifier
