"""Large pages for what is read from one end to the other.

A core finds an address through a table of pages, and keeps few of its entries at hand. Weights of
hundreds of megabytes in pages of 4 KiB ask for another entry every 64 lines, and each stops the
stream: on a Zen 4 in a virtual machine, whose tables are two deep, the same loop reads 1.2 to 1.4
times as fast from pages of 2 MiB. numpy asks Linux for them, torch does not.
"""

import ctypes
import sys
from functools import cache
from pathlib import Path

import torch

SIZE_FILE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
LEAST_BYTES, SMALL_BYTES = 2**22, 2**16  # of all tensors, where numpy begins, too; of one
MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25  # of Linux; the second since 6.1


def use_large_pages(*tensors: torch.Tensor) -> None:
    """Have the memory of tensors on the CPU lie in large pages, with what lies beside them there,
    as far as the system has them. No number changes, and none its address. Fewer bytes than
    LEAST_BYTES stay as they are: nothing drives their entries out."""
    size = page_bytes() if sum(tensor.nbytes for tensor in tensors) >= LEAST_BYTES else 0
    for tensor in tensors:
        if size and tensor.nbytes >= SMALL_BYTES and tensor.device.type == "cpu":
            first = tensor.data_ptr() // size * size
            n_bytes = -(-(tensor.data_ptr() + tensor.nbytes - first) // size) * size
            _advise(first, n_bytes, MADV_HUGEPAGE)
            for page in range(first, first + n_bytes, size):  # one that fails stops no other
                if _advise(page, size, MADV_COLLAPSE):
                    _advise(page, size, MADV_COLLAPSE)


def _advise(first: int, n_bytes: int, advice: int) -> int:
    """Other than 0 for what cannot be done now, and is left undone: someone else holds a page."""
    found = _libc().madvise(ctypes.c_void_p(first), ctypes.c_size_t(n_bytes), advice)
    return int(found)


@cache
def page_bytes() -> int:
    """The size of a large page; 0 where there are none."""
    try:
        return int(SIZE_FILE.read_text()) if sys.platform == "linux" else 0
    except (OSError, ValueError):
        return 0


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
