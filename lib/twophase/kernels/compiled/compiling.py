"""Whoever waits for a compiler is told so."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_S = 2.0
SENTENCE = (
    "compiling the kernels for this machine: once, some ten seconds; later runs find them in the"
    " cache"
)
_ready: set[tuple[object, ...]] = set()


@contextmanager
def saying_so(*what: object) -> Iterator[None]:
    """Around a call of compiled code: if it is the first of `what` (function, dtype) in this
    process and takes two seconds, a line on stderr says why."""
    if what in _ready:
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
