"""Workloads at the edges of latency_throughput-deployment: just full, just in time, the last chip,
the last batch, each machine in turn. Whoever is near at one of them is off by more than 5%."""

from __future__ import annotations

from twophase.checks.edges import past
from twophase.checks.exercise import Case
from twophase.checks.latency_throughput._deploying import Choice, best
from twophase.checks.latency_throughput._serving import (
    BIG,
    ROOMY,
    SMALL,
    Machine,
    Workload,
    machine,
    work,
)

MANY_CHIPS, MANY_REQUESTS = past(64), past(1024, 1500)
# (what is special, workload, machines, the best choice: machine, chips, format, batch)
Edge = tuple[str, Workload, list[Machine], tuple[str, int, str, int]]


def _memory() -> list[Edge]:
    """Where one byte of 900,000, or one chip's share, decides."""
    full = work(448_650, 900)  # weights of 897,300 bytes and three sequences: 900,000
    return [
        ("three sequences fill nine tenths", full, [machine()], ("plain", 1, "bf16", 3)),
        # whoever keeps results by some of the numbers is wrong here
        (
            "four sequences, fewer parameters",
            work(448_200, 900),
            [machine()],
            ("plain", 1, "bf16", 4),
        ),
        ("one sequence, twice as wide", work(448_650, 1800), [machine()], ("plain", 1, "bf16", 1)),
        (
            "one sequence, twice as long",
            work(448_650, 900, context=2),
            [machine()],
            ("plain", 1, "bf16", 1),
        ),
        (
            "a byte short of three sequences",
            work(448_650, 900),
            [machine(memory_bytes=999_998)],
            ("plain", 1, "bf16", 2),
        ),
        (
            "two bytes short of three sequences, of 4.5 million",
            work(2_248_651, 900),
            [machine(memory_bytes=5_000_000)],
            ("plain", 1, "bf16", 2),
        ),
        (
            "in int8 the caches keep their two bytes",
            work(897_300, 900, formats=["int8"]),
            [machine()],
            ("plain", 1, "int8", 3),
        ),
        (
            "three sequences fit in bf16, and eight in int8",
            work(448_650, 900, formats=["bf16", "int8"]),
            [machine()],
            ("plain", 1, "int8", 8),
        ),
        (
            "three sequences fill three chips",
            work(1_348_650, 900),
            [machine(max_chips=3)],
            ("plain", 3, "bf16", 3),
        ),
        (
            f"weights for {MANY_CHIPS} chips",
            work(MANY_CHIPS * 450 - 10, 10, max_batch=3),
            [machine(max_chips=MANY_CHIPS, **SMALL)],
            ("plain", MANY_CHIPS, "bf16", 2),
        ),
        (
            "eleven chips, an odd number",
            work(11 * 450 - 10, 10, max_batch=2),
            [machine(max_chips=11, **SMALL)],
            ("plain", 11, "bf16", 2),
        ),
        (
            "five of eight chips hold it, and each more only waits",
            work(5 * 450 - 10, 10, max_batch=1),
            [machine(max_chips=8, sync_s=0.01, **SMALL)],
            ("plain", 5, "bf16", 1),
        ),
        (
            "nine tenths of two chips: 1,801.8 bytes, of one: 900.9",
            work(1791, 10, max_batch=1, formats=["int8"]),
            [machine(max_chips=2, memory_bytes=1001)],
            ("plain", 2, "int8", 1),
        ),
    ]


def _time() -> list[Edge]:
    """Where a thousandth of the limit, or of a wait, decides."""
    read = 1 + 4 * 2.0**-11  # seconds: the weights and four sequences
    pair: Machine = {"max_chips": 3, "memory_bytes": 500_000}  # three chips, or nothing fits
    return [
        (
            "four sequences are just in time",
            work(BIG, 2**9, max_batch=64, tpot_limit_s=read),
            [machine(**ROOMY)],
            ("plain", 1, "bf16", 4),
        ),
        (
            "four sequences are half a millionth late",
            work(BIG, 2**9, max_batch=64, tpot_limit_s=read - 2.0**-21),
            [machine(**ROOMY)],
            ("plain", 1, "bf16", 3),
        ),
        (
            "one sequence, in six days, is just in time",
            work(BIG, 2**9, tpot_limit_s=2.0**19 + 2.0**8),
            [machine(bytes_per_s=2.0, price_per_hour=20_000.0, **ROOMY)],
            ("plain", 1, "bf16", 1),
        ),
        (
            "one sequence is just in time",
            work(BIG, 2**9, max_batch=64, tpot_limit_s=1 + 2.0**-11),
            [machine(**ROOMY)],
            ("plain", 1, "bf16", 1),
        ),
        (
            "three chips that wait for each other are just in time",
            work(3 * 2**17, 3 * 2**9, max_batch=64, tpot_limit_s=0.25 + 4 * 2.0**-11 + 2 * 0.125),
            [machine(sync_s=0.125, **pair)],
            ("plain", 3, "bf16", 4),
        ),
        (
            "three chips would hold more, and wait too long",
            work(600, 50, max_batch=40, tpot_limit_s=0.00136),
            [machine(max_chips=3, sync_s=0.0005, **SMALL)],
            ("plain", 2, "bf16", 12),
        ),
        (
            "computing is just in time",
            work(2**18, 2, max_batch=64, tpot_limit_s=1.0),
            [machine(flops_per_s=2.0**21, **ROOMY)],
            ("plain", 1, "bf16", 4),
        ),
        (
            "in int8 computing takes as long, and is just in time",
            work(2**18, 2, max_batch=64, tpot_limit_s=1.0, formats=["int8"]),
            [machine(flops_per_s=2.0**21, bytes_per_s=2.0**18 + 16, **ROOMY)],  # eight are read
            ("plain", 1, "int8", 4),
        ),
        (
            "two chips compute and wait, just in time",
            work(2**18, 2, max_batch=64, tpot_limit_s=1.0),
            [machine(flops_per_s=2.0**21, memory_bytes=300_000, max_chips=2, sync_s=0.5)],
            ("plain", 2, "bf16", 4),
        ),
        (
            "two chips compute together, just in time",
            work(2**18, 2, max_batch=64, tpot_limit_s=1.0),
            [machine(flops_per_s=2.0**21, memory_bytes=300_000, max_chips=2)],
            ("plain", 2, "bf16", 8),
        ),
    ]


def _numbers() -> list[Edge]:
    """The largest batch and the smallest, in every format; long contexts."""
    return [
        (
            f"{MANY_REQUESTS:,} requests",
            work(BIG, 2, max_batch=MANY_REQUESTS),
            [machine(**ROOMY)],
            ("plain", 1, "bf16", MANY_REQUESTS),
        ),
        ("seven requests", work(BIG, 2, max_batch=7), [machine(**ROOMY)], ("plain", 1, "bf16", 7)),
        # of the same length: whoever keeps results by that is wrong here
        (
            "seven requests, in int8",
            work(BIG, 2, max_batch=7, formats=["int8"]),
            [machine(**ROOMY)],
            ("plain", 1, "int8", 7),
        ),
        ("one request", work(BIG, 2, max_batch=1), [machine(**ROOMY)], ("plain", 1, "bf16", 1)),
        (
            "int8 comes first",
            work(BIG, 2, formats=["int8", "bf16"]),
            [machine(**ROOMY)],
            ("plain", 1, "int8", 8),
        ),
        (
            "int8 comes last",
            work(BIG, 2, formats=["bf16", "int8"]),
            [machine(**ROOMY)],
            ("plain", 1, "int8", 8),
        ),
        (
            "40,009 tokens in each cache",
            work(1000, 2, context=40_009, tpot_limit_s=0.26),
            [machine()],
            ("plain", 1, "bf16", 3),
        ),
        (
            "two chips hold many, one holds two, and the wait is worth it",
            work(400, 50, max_batch=20),
            [machine(max_chips=2, sync_s=0.0017, **SMALL)],
            ("plain", 2, "bf16", 20),
        ),
        (
            "two chips hold many, one holds two, and the wait costs more",
            work(400, 50, max_batch=20),
            [machine(max_chips=2, sync_s=0.005, **SMALL)],
            ("plain", 1, "bf16", 2),
        ),
        (
            "a second chip would only wait",
            work(BIG, 2),
            [machine(max_chips=2, sync_s=0.1, **ROOMY)],
            ("plain", 1, "bf16", 8),
        ),
    ]


def _machines() -> list[Edge]:
    """The first of four, the last, the dearest, one with a number of chips that no other has."""
    w = work(BIG, 2)
    fits = ROOMY
    names = ("first", "second", "third", "fourth")
    each: list[Edge] = [
        (
            f"only the {name} machine holds the weights, and is dear",
            w,
            [machine(n, **({"price_per_hour": 9.0} | fits if n == name else SMALL)) for n in names],
            (name, 1, "bf16", 8),
        )
        for name in ("first", "third", "fourth")
    ]
    return [
        *each,
        (
            "the first has two chips, the second five",
            work(2_240_000, 900),
            [machine("first", max_chips=2), machine("second", max_chips=5, price_per_hour=2.0)],
            ("second", 5, "bf16", 8),
        ),
        (
            "the cheaper one computes three times as long as it reads",
            w,
            [
                machine("first", flops_per_s=2.0**25 / 3, bytes_per_s=2.0**22, **fits),
                machine("second", price_per_hour=2.0, bytes_per_s=2.0**22, **fits),
            ],
            ("second", 1, "bf16", 8),
        ),
        (
            "the cheaper one computes 1.6 times as long as it reads",
            w,
            [
                machine("first", flops_per_s=2.0**25 / 1.6, bytes_per_s=2.0**22, **fits),
                machine("second", price_per_hour=2.0, bytes_per_s=2.0**22, **fits),
            ],
            ("first", 1, "bf16", 8),
        ),
        (
            "the second costs 5.15% less",
            w,
            [machine("first", price_per_hour=1.0515, **fits), machine("second", **fits)],
            ("second", 1, "bf16", 8),
        ),
    ]


EDGES: list[Edge] = [*_memory(), *_time(), *_numbers(), *_machines()]


def named(choice: tuple[str, int, str, int]) -> Choice:
    return dict(zip(("machine", "n_chips", "format", "batch"), choice, strict=True))


def edges() -> list[Case]:
    """A case for every edge. Each promises which choice is the best."""
    for name, w, machines, choice in EDGES:
        assert best(w, machines) == named(choice), (name, best(w, machines))
    return [Case(name, (w, machines)) for name, w, machines, _ in EDGES]
