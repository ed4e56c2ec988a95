"""The corpus: listed, checked, split cleanly, and clear about what is wrong."""

import hashlib

import numpy as np
import pytest

from twophase.models import corpus


def test_every_listed_file_is_installed_as_listed_and_ends_with_a_zero():
    for split in ("train", "held_out"):
        data = corpus.load(split)
        listed = [f for p in corpus.packages() if p.split == split for f in p.files]
        assert data.dtype == np.uint8
        assert len(data) == sum(f.size + 1 for f in listed)
        assert (data == corpus.END).sum() == len(listed)
        assert data[-1] == corpus.END


def test_no_file_and_no_package_is_on_both_sides():
    sides = {s: [p for p in corpus.packages() if p.split == s] for s in ("train", "held_out")}
    for what in (
        lambda p: {p.name},
        lambda p: {f.sha256 for f in p.files},
        lambda p: {f.path for f in p.files},
    ):
        train, held_out = (set().union(*map(what, sides[s])) for s in ("train", "held_out"))
        assert train.isdisjoint(held_out)
    hashes = [f.sha256 for p in corpus.packages() for f in p.files]
    assert len(hashes) == len(set(hashes))


def test_no_package_dominates():
    sizes = [sum(f.size for f in p.files) for p in corpus.packages() if p.split == "train"]
    assert max(sizes) < 0.1 * sum(sizes)


def test_every_package_is_pinned_in_requirements_or_constraints(request):
    root = request.config.rootpath
    pins = (root / "requirements.txt").read_text() + (root / "constraints.txt").read_text()
    pinned = {line.strip().lower() for line in pins.splitlines()}
    assert len(corpus.packages()) > 10
    for package in corpus.packages():
        assert f"{package.name}=={package.version}".lower() in pinned


@pytest.fixture
def listing(tmp_path):
    def write(head: str, line: str):
        path = tmp_path / "corpus.txt"
        path.write_text(f"# a list\npackage {head}\n{line}\n")
        corpus.packages.cache_clear()
        return path

    yield write
    corpus.packages.cache_clear()


def known() -> tuple[corpus.Package, corpus.Source]:
    package = corpus.packages()[0]
    return package, package.files[0]


def test_a_file_that_differs_is_named_with_its_package_and_the_remedy(listing):
    package, file = known()
    path = listing(
        f"{package.name} {package.version} train MIT", f"{'0' * 16} {file.size} {file.path}"
    )
    with pytest.raises(
        ValueError,
        match=f"{package.name}=={package.version}, but its file {file.path} is not the released",
    ):
        corpus.load("train", path)


def test_another_version_is_named_with_the_expected_one(listing):
    package, file = known()
    path = listing(f"{package.name} 0.0.1 train MIT", f"{file.sha256} {file.size} {file.path}")
    with pytest.raises(
        ValueError,
        match=f"reads {package.name}==0.0.1, but {package.name} {package.version} is installed",
    ):
        corpus.load("train", path)


def test_a_missing_package_says_how_to_install_it(listing):
    path = listing("no-such-package-here 1.0 train MIT", "00 1 x.py")
    with pytest.raises(
        ValueError, match=r"not installed: run `pip install no-such-package-here==1\.0`"
    ):
        corpus.load("train", path)


def test_a_list_that_fits_loads_exactly_its_files(listing):
    package, file = known()
    path = listing(
        f"{package.name} {package.version} train MIT", f"{file.sha256} {file.size} {file.path}"
    )
    data = corpus.load("train", path).tobytes()
    assert hashlib.sha256(data[:-1]).hexdigest().startswith(file.sha256)
    assert len(corpus.load("held_out", path)) == 0


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match='"train" and "held_out"; got "test"'):
        corpus.load("test")
