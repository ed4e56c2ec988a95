"""What holds for every test: where chance comes from, and how many threads there are.

`make test` gives the same answer every time: hypothesis draws the same examples, and whatever draws
from a global generator finds it in the same state, whatever ran before. `make test-more` is where
chance belongs: fresh draws, ten times as many (tests/draws.py), from a seed that the head of the
report names; `--draws=SEED` repeats it.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
from collections.abc import Generator

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

SAME, FRESH = "same", "fresh"  # the profiles of hypothesis
UNTIMED = {
    "deadline": None,  # a neighbor may be busy
    "suppress_health_check": [hypothesis.HealthCheck.too_slow],
    "database": None,  # what failed here yesterday changes nothing today
}
SEED = pytest.StashKey[int]()

hypothesis.settings.register_profile(SAME, derandomize=True, **UNTIMED)
hypothesis.settings.register_profile(FRESH, print_blob=True, **UNTIMED)
hypothesis.settings.load_profile(SAME)
assert providers.is_local_module_file  # the name that is replaced below
# Building a grammar for URLs takes 2 s of every process that imports nbformat, and no notebook's
# schema asks for one; jsonschema does without.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--draws",
        metavar="SEED",
        help="draw afresh, from this seed ('fresh': from any); without it always the same",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    draws = config.getoption("draws")
    if draws is None:
        # Hypothesis mixes in the numbers in the source of whatever is imported by then: the draws
        # would change with the order of the tests, and with every line of the package.
        providers.is_local_module_file = lambda path: False
    else:
        if draws == FRESH:  # the processes of xdist are handed the seed, not the word
            draws = config.option.draws = str(int.from_bytes(os.urandom(4), "big"))
        hypothesis.settings.load_profile(FRESH)
        config.option.hypothesis_seed = draws
    config.stash[SEED] = int(draws or 0)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what runs in its background deaf to Ctrl-C, and every process inherits it.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported here stays: looking through it for garbage, again and again, is a tenth of
    the tests' time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_report_header(config: pytest.Config) -> str:
    draws = config.getoption("draws")
    return "draws: always the same" if draws is None else f"draws: afresh, --draws={draws}"


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> None:
    _start_alike(request.config)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    _start_alike(item.config)


def _start_alike(config: pytest.Config) -> None:
    """Set the global generators, and one thread: more of them take their sums in another order, and
    wait for each other where a neighbor is busy. For fixtures too, since the test that comes first
    makes what many share."""
    seed = config.stash[SEED]
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)
    if torch := sys.modules.get("torch"):
        # torch.manual_seed notes a stack trace for each kind of device that may wake up later: most
        # of a millisecond, twice a test
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)
        torch.set_num_threads(1)
