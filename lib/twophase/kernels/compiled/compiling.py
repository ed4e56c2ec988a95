"""How functions are compiled: once, where a folder for machine code can be written. Whoever waits
for it at a terminal is told so."""

import hashlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

_Function = TypeVar("_Function", bound=Callable[..., Any])
PATIENCE_S = 2.0
SENTENCE = (
    "compiling the kernels for this machine, about half a minute: once for each dtype, each order"
    " of kinds of layers, and for one core and all; later runs find them in the cache"
)
# What Numba's environment sets (`NUMBA_BOUNDSCHECK=1`) that makes other machine code of one text.
SETTINGS = (
    "BOUNDSCHECK",
    "OPT",
    "LOOP_VECTORIZE",
    "SLP_VECTORIZE",
    "DEBUGINFO_DEFAULT",
    "DISABLE_INTEL_SVML",
    "LLVM_REFPRUNE_PASS",
    "LLVM_REFPRUNE_FLAGS",
)
_ready: set[tuple[object, ...]] = set()


def compiled(**options: Any) -> Callable[[_Function], _Function]:
    """`numba.njit` with these options, its machine code kept on disk. Where neither the folder of
    the source nor one of the user's can be written (a grader's worker, say) each process compiles
    for itself."""

    def compile_(function: _Function) -> _Function:
        dispatcher = numba.njit(**options)(function)
        with suppress(RuntimeError):  # Numba finds no such folder
            dispatcher._cache = _MachineCode(function)
        return dispatcher  # type: ignore[no-any-return]

    return compile_


class _MachineCode(FunctionCache):  # type: ignore[misc]
    """What Numba keeps of a function, until its own file or any file of this folder changes. By
    itself Numba looks at the function's file alone, and goes on with the old code of what the
    function calls; and it takes code that was compiled under other settings (`SETTINGS`) for its
    own. What cannot be read or written is compiled, and not kept."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        found = self._impl  # the digest in names: no file of other sources is ever read or replaced
        self._cache_file = IndexDataCacheFile(
            self._cache_path,
            f"{found.filename_base}-{_digest()}",
            found.locator.get_source_stamp(),
        )

    def load_overload(self, signature: Any, context: Any) -> Any:
        with suppress(OSError):
            return super().load_overload(signature, context)
        return None

    def save_overload(self, signature: Any, code: Any) -> None:
        with suppress(OSError):
            super().save_overload(signature, code)


@cache
def _digest(folder: Path = Path(__file__).parent) -> str:
    """Of the sources in a folder and of what is set, 12 digits."""
    sources = b"".join(path.read_bytes() for path in sorted(folder.glob("[!.]*.py")))
    settings = [str(getattr(numba.config, name)) for name in SETTINGS]
    return hashlib.sha256(sources + " ".join(settings).encode()).hexdigest()[:12]


@contextmanager
def saying_so(*what: object) -> Iterator[None]:
    """Around a call of compiled code: if it is the first of `what` (function, dtype) in this
    process and takes two seconds, a line on the terminal says why. Elsewhere nothing does: what a
    notebook, a page or a log keeps is the same whether machine code was there or not."""
    if what in _ready or not sys.stderr.isatty():
        yield
        return
    timer = threading.Timer(PATIENCE_S, print, [SENTENCE], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
        _ready.add(what)
    finally:
        timer.cancel()
