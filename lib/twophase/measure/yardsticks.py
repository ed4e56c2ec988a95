"""What a machine is timed on: ways to read a buffer from main memory, and square products."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache, partial

import torch

from .stopwatch import stopwatch
from .system import available_bytes, last_level_cache_bytes

Work = tuple[Callable[[], object], float]  # what to run, and how many bytes or FLOPs that is

GEMM_TARGET_S = 0.02
CARD_BUFFER_BYTES = 2**31  # a card's cache is 50 MB, and its reads are too quick for smaller ones
CARD_PASSES = 4  # reads of the buffer for each wait: waiting takes a hundredth of one read
ROW = 1024  # numbers in a row of the buffer when it is read as a matrix
_TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}


def default_device() -> str:
    """`cuda` where there is one, else `cpu`."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def buffer_bytes(device: str = "cpu") -> int:
    """How much to read so that it comes from memory: twice the last-level cache, 256 MiB to 1 GiB,
    an eighth of what is free; on a card 2 GiB, of its own memory."""
    if device == "cuda":
        return min(CARD_BUFFER_BYTES, torch.cuda.mem_get_info()[0] // 8)
    return min(max(2 * last_level_cache_bytes(), 2**28), 2**30, available_bytes() // 8)


@cache
def supported_dtypes(device: str) -> tuple[str, ...]:
    """Formats whose matrix product this torch has on this device: fp32, bf16, and int8 where it
    exists."""
    works = []
    for dtype in _TORCH_DTYPES:
        try:
            _multiply(dtype, 64, device)()
        except (RuntimeError, NotImplementedError):
            continue
        works.append(dtype)
    return tuple(works)


@lru_cache(maxsize=1)
def _buffer(n_bytes: int, device: str) -> torch.Tensor:
    buffer = torch.ones(max(1, n_bytes // (4 * ROW)), ROW, device=device)  # [rows, ROW]
    if device == "cpu":
        from twophase.kernels.compiled.pages import use_large_pages

        use_large_pages(buffer)
    return buffer


def readers(n_bytes: int, device: str) -> dict[str, Work]:
    """Ways to read a buffer once: torch's sum and maximum; on a CPU also our matrix times vector,
    and squares from eight places in turns (`kernels.reading`), with as many threads as torch has,
    the squares with one where loops have no more (`compiled.threads`). There the buffer lies in
    large pages, as the weights and caches of compiled models do.

    Which is fastest differs from machine to machine, by half and more; a ceiling is the fastest of
    them, or some kernel comes out above it. ValueError for less than a byte.
    """
    if not 1 <= n_bytes < math.inf:
        raise ValueError(f"a buffer that is read has some bytes; got {n_bytes}.")
    buffer = _buffer(n_bytes, device)  # [rows, ROW]
    if device == "cuda":
        ways: dict[str, Callable[[], object]] = {"sum": buffer.sum, "max": buffer.amax}
        return {
            name: (partial(_several, read), CARD_PASSES * buffer.numel() * 4)
            for name, read in ways.items()
        }
    found: dict[str, Work] = {
        "sum": (buffer.sum, buffer.numel() * 4),
        "max": (buffer.amax, buffer.numel() * 4),
    }
    if device == "cpu":
        from twophase.kernels.matvec import matvec
        from twophase.kernels.reading import sum_of_squares

        ones = torch.ones(ROW)
        found["matvec"] = (_with_torchs_threads(partial(matvec, buffer, ones)), buffer.numel() * 4)
        in_turns = _with_torchs_threads(partial(sum_of_squares, buffer))
        found["eight places"] = (in_turns, buffer.numel() * 4)
    return found


def in_order(n_bytes: int) -> Callable[[], object]:
    """The control of the reader "eight places" on a CPU: the same loop over the same buffer, each
    thread from one end of its part to the other."""
    from twophase.kernels.reading import sum_of_squares

    return _with_torchs_threads(partial(sum_of_squares, _buffer(n_bytes, "cpu"), places=1))


def _with_torchs_threads(read: Callable[[], object]) -> Callable[[], None]:
    """A loop of Numba's on as many threads as torch has; both have the number afterwards that they
    had before."""
    import numba

    def way() -> None:
        threads, kept = torch.get_num_threads(), numba.get_num_threads()
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        read()
        numba.set_num_threads(kept)
        torch.set_num_threads(threads)  # starting numba's threads resets torch's

    return way


def forget_buffer() -> None:
    """Give the memory of the buffer back, once its readers are gone."""
    _buffer.cache_clear()


def _several(read: Callable[[], object]) -> None:
    """A card's calls return at once, and only their end is waited for."""
    for _ in range(CARD_PASSES):
        read()


def _multiply(dtype: str, size: int, device: str) -> Callable[[], object]:
    if dtype not in _TORCH_DTYPES:
        raise ValueError(
            f"No matrix product is measured in {dtype!r}; known formats:"
            f" {', '.join(_TORCH_DTYPES)}."
        )
    a = _numbers(size, _TORCH_DTYPES[dtype], device)  # [size, size]
    return (lambda: torch._int_mm(a, a.t())) if dtype == "int8" else (lambda: torch.mm(a, a))


def _numbers(size: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """A square matrix of the dtype. A card takes less power to multiply ones, and then runs faster
    than with numbers that differ; a CPU does not care."""
    if device != "cuda":
        return torch.ones(size, size, dtype=dtype, device=device)
    if dtype == torch.int8:
        return torch.randint(-127, 128, (size, size), dtype=dtype, device=device)
    return torch.randn(size, size, device=device).to(dtype)


def gemm(dtype: str, device: str, size: int | None = None) -> Work:
    chosen = size or _gemm_size(dtype, device)
    return _multiply(dtype, chosen, device), 2.0 * chosen**3


@cache
def _gemm_size(dtype: str, device: str) -> int:
    """The smallest power of two whose GEMM takes long enough even when nothing interrupts it, from
    512 to 16384."""
    size = 512
    while size < 16384:
        timing = stopwatch(
            _multiply(dtype, size, device), budget_s=1e-6, warmup=1, min_rounds=5, max_rounds=5
        )
        if timing.fastest_s >= GEMM_TARGET_S:
            break
        size *= 2
    return size
