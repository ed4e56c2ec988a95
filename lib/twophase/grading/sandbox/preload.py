"""What is loaded once, before anything is forked: the libraries that notebooks import."""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import sys
from pathlib import Path

from twophase.grading.files.removal import remove

LATE = ("torch._dynamo", "torch.utils.flop_counter")
COMPILED = "TORCHINDUCTOR_CACHE_DIR"  # torch writes it, too
LIBRARIES = (
    *("numpy", "torch", "torch.nn.functional", "numba", "asyncio", "matplotlib.pyplot"),
    "twophase.lab",
)


def preload() -> list[str]:
    """Import what notebooks import. Returns what could not be imported."""
    failed: list[str] = []
    for name in LIBRARIES:
        try:
            importlib.import_module(name)
        # no reason to grade nothing, unless it is torch or numpy
        except Exception as e:
            failed.append(f"{name}: {type(e).__name__}: {e}")
    torch = sys.modules["torch"]
    torch.set_num_threads(1)  # a fork after an operation on several threads hangs
    torch.set_num_interop_threads(1)
    vars(torch)["set_num_interop_threads"] = lambda n: None  # a second call would raise
    sys.dont_write_bytecode = True  # what is above is kept for the next run, but nobody writes more
    os.environ.pop("XDG_CACHE_HOME", None)
    return failed


def load_more() -> None:
    """Import what training a step, torch.compile, torch.func, torch's counter of FLOPs and tensors
    without values load when they are first used: a second, for those who use them. The folder that
    torch makes on the way, for what it compiles, goes again: a submission has one in its own, or
    none."""
    os.environ.pop(COMPILED, None)
    for name in LATE:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    if made := os.environ.pop(COMPILED, ""):
        remove(Path(made))
    # no compiler can be started in there: what torch.compile was given then runs as it is
    sys.modules["torch"]._dynamo.config.suppress_errors = True


def seed() -> None:
    """The same random numbers in every submission's process, at whatever time it is forked."""
    random.seed(0)
    sys.modules["numpy"].random.seed(0)
    sys.modules["torch"].manual_seed(0)
