"""Large pages change where memory lies for the machine, and nothing that a program sees."""

import pytest
import torch

from twophase.kernels.compiled import pages


@pytest.fixture(autouse=True)
def asked_anew():
    pages.page_bytes.cache_clear()
    yield
    pages.page_bytes.cache_clear()


def test_numbers_and_addresses_stay():
    tensors = [torch.randn(n) for n in (3, 40_000, 3_000_000)]
    held = [(x.clone(), x.data_ptr()) for x in tensors]
    pages.use_large_pages(*tensors)
    for tensor, (numbers, address) in zip(tensors, held, strict=True):
        assert tensor.data_ptr() == address
        assert torch.equal(tensor, numbers)


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """What is asked of a system with large pages of 2 MiB: address, bytes, advice. It refuses what
    it is asked first."""
    found: list[tuple[int, int, int]] = []

    class Libc:
        @staticmethod
        def madvise(first, n, advice):
            found.append((first.value, n.value, advice))
            return -1 if len(found) < 3 else 0

    monkeypatch.setattr(pages, "SIZE_FILE", tmp_path / "size")
    monkeypatch.setattr(pages, "_libc", Libc)
    monkeypatch.setattr(pages.sys, "platform", "linux")
    pages.SIZE_FILE.write_text(str(2**21))
    return found


def test_each_large_page_of_a_tensor_is_asked_for_once_and_again_where_it_is_refused(asked):
    large = torch.zeros(2**20)
    pages.use_large_pages(large)
    (first, n_bytes, advice), *collapsed = asked
    assert first % 2**21 == n_bytes % 2**21 == 0
    assert first <= large.data_ptr()
    assert large.data_ptr() + large.nbytes <= first + n_bytes
    assert advice == pages.MADV_HUGEPAGE
    starts = range(first, first + n_bytes, 2**21)
    assert collapsed == [(at, 2**21, pages.MADV_COLLAPSE) for at in (first, *starts)]


def test_little_is_not_asked_for(asked):
    pages.use_large_pages(torch.zeros(2**18))
    pages.use_large_pages(*[torch.zeros(8)] * 2**17)
    assert not asked


@pytest.mark.parametrize("n_bytes", [None, ""])
def test_nothing_is_asked_where_there_are_no_large_pages(n_bytes, asked):
    pages.SIZE_FILE.unlink() if n_bytes is None else pages.SIZE_FILE.write_text(n_bytes)
    pages.use_large_pages(torch.zeros(2**20))
    assert not asked
