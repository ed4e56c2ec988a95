"""How many threads compiled loops get, and on what.

Starting a parallel loop takes 1 µs where Numba stands on OpenMP or TBB. Its own work queue takes 60
to 105 µs, and OpenMP as much where threads sleep between loops (`OMP_WAIT_POLICY=passive`): more
than the loops of a decode step save. There one thread is faster, and is what is used.
"""

import os
import threading
import warnings
from functools import cache

import numba
import torch
from numba.np.ufunc import parallel


@cache
def threading_layer() -> str:
    """What Numba's parallel loops stand on in this process: "omp", "tbb" or "workqueue". Starts
    its threads; torch keeps the number that it had."""
    threads = torch.get_num_threads()
    parallel._launch_threads()
    torch.set_num_threads(threads)  # both share one OpenMP; starting Numba's sets the number
    return str(numba.threading_layer())


def why_serial() -> str | None:
    """The sentence that says why compiled loops run on one thread here; None if they do not have
    to."""
    layer = threading_layer()
    if layer == "workqueue":
        return (
            "Numba finds no OpenMP here and starts its threads too slowly (workqueue): compiled"
            " kernels run on one thread. Install libgomp (Linux) or libomp (macOS)."
        )
    if layer == "omp" and os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":
        return (
            "OMP_WAIT_POLICY=passive lets threads sleep between loops: compiled kernels run on one"
            " thread. Unset it for as many as torch has."
        )
    return None


def workers_of_parallel_loops() -> int:
    """How many threads loops that were compiled for all cores run on from now: `workers`, 1
    included. Raises ValueError in a process that was forked after such loops had run.

    A decode step asks this before its first loop, with nothing in the caches: so Numba is told only
    when torch's number has changed.
    """
    wanted = torch.get_num_threads()
    if not _forked and wanted == getattr(_told, "wanted", 0):
        return _told.n  # type: ignore[no-any-return]
    if _forked:
        raise ValueError(
            "this process was forked from one whose loops ran on all cores, and OpenMP's threads"
            " stay behind: take loops for one core here (`parallel=False`), or spawn, not fork."
        )
    threading_layer()
    n = workers()
    numba.set_num_threads(n)
    _told.wanted, _told.n = wanted, n
    return n


def workers_even_if_forked() -> int:
    """The same for a loop that has a form for one core at hand: 1 in a process that was forked."""
    return 1 if _forked else workers_of_parallel_loops()


def workers() -> int:
    """How many threads compiled loops run on from now: as many as torch has, or 1, which is said
    once in a warning, where starting them costs too much."""
    wanted = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)
    if wanted > 1 and (_forked or _must_be_serial()):
        return 1
    if wanted > 1:
        numba.set_num_threads(wanted)
        _told.wanted = 0
    return int(wanted)


def _note_fork() -> None:
    global _forked
    _forked = parallel._is_initialized and threading_layer() == "omp"


_told = threading.local()  # by each thread: at which number of torch's, and what Numba was told
_forked = False  # from a process with OpenMP's threads: a loop on all cores would end this one
os.register_at_fork(after_in_child=_note_fork)


@cache
def _must_be_serial() -> bool:
    reason = why_serial()
    if reason:
        warnings.warn(reason, RuntimeWarning, stacklevel=3)
    return reason is not None
