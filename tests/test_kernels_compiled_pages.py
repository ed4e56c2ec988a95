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


@pytest.mark.parametrize("n_bytes", [None, "", "2097152"])
def test_memory_is_asked_for_only_where_there_are_large_pages_and_much_to_read(
    n_bytes, tmp_path, monkeypatch
):
    asked = []

    class Libc:
        @staticmethod
        def madvise(first, n, advice):
            asked.append((first.value % 2**21, n.value % 2**21, advice))

    monkeypatch.setattr(pages, "SIZE", tmp_path / "size")
    monkeypatch.setattr(pages, "_libc", Libc)
    monkeypatch.setattr(pages.sys, "platform", "linux")
    if n_bytes is not None:
        pages.SIZE.write_text(n_bytes)
    small, large = torch.zeros(2**18), torch.zeros(2**20)
    pages.use_large_pages(small)
    assert not asked
    pages.use_large_pages(small, large, torch.zeros(8))
    whole = [(0, 0, pages.MADV_HUGEPAGE), (0, 0, pages.MADV_COLLAPSE)]
    assert asked == (whole * 2 if n_bytes else [])
