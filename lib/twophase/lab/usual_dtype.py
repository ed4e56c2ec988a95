"""torch's default dtype on the two sides of a check: the notebook has what its cells have set, the
check the usual one. Where answers are graded these are two processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class Sides:
    """Whichever side runs, the other's dtype waits here."""

    def __init__(self) -> None:
        self._torch = sys.modules.get("torch")  # where nobody has loaded it, nothing is set
        self._waits = self._torch and self._torch.float32

    @contextmanager
    def across(self) -> Iterator[None]:
        """Within it the other side runs: from the notebook the check, inside of that the answer,
        inside of that a function of the check's which the answer calls."""
        if self._torch is None:
            yield
            return
        here = self._torch.get_default_dtype()
        self._torch.set_default_dtype(self._waits)
        self._waits = here
        try:
            yield
        finally:
            self._waits = self._torch.get_default_dtype()
            self._torch.set_default_dtype(here)
