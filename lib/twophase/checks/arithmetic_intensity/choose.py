"""arithmetic_intensity-choose: a batch for a workload and a machine: the most tokens per second
under a limit on the step."""

from __future__ import annotations

from twophase.checks.answer import Answer
from twophase.checks.arithmetic_intensity import _batches as b
from twophase.checks.arithmetic_intensity._batches import (
    best,
    step_s,
    throughput,
    weight_bytes,
)
from twophase.checks.arithmetic_intensity._workloads import NEAR, cases
from twophase.checks.compare import EXACT, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

SLACK = 1 + 3e-7  # sums in another order, perhaps in float32: half a millionth is too much


def observe(answer: Answer, case: Case) -> dict[str, str]:
    """Whether the batch is one, fits, is in time, and gives at least 95% of the best
    throughput."""
    w, m = case.args
    batch = plain(answer.call("choose", w, m))
    if type(batch) is not int or not 1 <= batch <= w["max_batch"]:
        said = f"must be a whole number, an int from 1 to {w['max_batch']}, and is {batch!r}"[:120]
        return {"the batch": said, "memory": "", "step": "", "throughput": ""}
    need, took, limit = (
        weight_bytes(w) + batch * w["cache_bytes_per_sequence"],
        step_s(w, m, batch),
        w["tpot_limit_s"],
    )
    share = throughput(w, m, batch) / throughput(w, m, best(w, m))
    room = m["memory_bytes"]
    return {
        "the batch": "valid",
        "memory": ("fits" if need <= room * SLACK else f"needs {need:,.0f} bytes of {room:,.0f}"),
        "step": (
            "in time"
            if took <= limit * SLACK
            else f"takes {took * 1e3:.6g} ms of {limit * 1e3:.6g} ms"
        ),
        "throughput": (
            "within 5% of the best" if share * SLACK >= NEAR else f"{share:.4f} of the best"
        ),
    }


wrong.add(
    "single",
    b.single,
    "plausible",
    "A batch of one has the shortest step and wastes it: reading the weights then serves one"
    " token.",
)
wrong.add(
    "critical_batch",
    b.critical_batch,
    "“run at the critical batch”",
    "You took the critical batch. It says where computing overtakes reading the weights, not what"
    " fits or is in time.",
)
wrong.add(
    "fills_memory",
    b.fills_memory,
    "plausible",
    "You filled the memory: the step must also end within tpot_limit_s, and more is not always"
    " faster.",
)
wrong.add(
    "cache_time_left_out",
    b.cache_time_left_out,
    "step times from the weights alone",
    "You left out reading the caches, which every step does: B · cache_bytes_per_sequence bytes.",
)
wrong.add(
    "room_left_out",
    b.room_left_out,
    "plausible",
    "Weights and caches must fit in memory_bytes together.",
)
wrong.add(
    "tile_left_out",
    b.tile_left_out,
    "rooflines without tiles",
    "The machine computes whole tiles: a batch of tile + 1 costs as much as 2 · tile.",
)
wrong.add(
    "compute_left_out",
    b.compute_left_out,
    "“decode is always memory bound”",
    "You left out computing: above the critical batch it takes longer than reading the weights.",
)
wrong.add(
    "largest_allowed",
    b.largest_allowed,
    "plausible",
    "You took the largest batch allowed. Just past a multiple of tile the step takes longer and"
    " gives hardly more tokens.",
)
wrong.add(
    "everything_overlaps",
    b.everything_overlaps,
    "step times as one max(compute, memory)",
    "You let the caches be read while the products are computed. Here attention comes after them:"
    " its time is added.",
)
wrong.add(
    "power_of_two",
    b.power_of_two,
    "plausible",
    "You rounded down to a power of two: up to half of the throughput is lost.",
)
wrong.add(
    "limit_left_out",
    b.limit_left_out,
    "plausible",
    "You never look at tpot_limit_s: the step must not take longer.",
)
wrong.add(
    "max_batch_left_out",
    b.max_batch_left_out,
    "plausible",
    "No more than max_batch sequences are there.",
)
wrong.add(
    "last_batch_left_out",
    b.last_batch_left_out,
    "range without its end",
    "You never try max_batch itself: range(1, n) ends at n − 1.",
)
wrong.add(
    "whole_tiles",
    b.whole_tiles,
    "“batch sizes should be multiples of the tile”",
    "You round down to whole tiles. While reading the weights takes longer than computing, a"
    " partial tile costs nothing.",
)
wrong.add(
    "limit_for_the_batch",
    b.limit_for_the_batch,
    "plausible",
    "You multiplied the step of one sequence by B: a step serves the whole batch at once.",
)


EXERCISE = Exercise(
    id="arithmetic_intensity-choose",
    title="A batch for a machine",
    kind="judgement",
    points=4,
    minutes=20,
    entries=("choose",),
    cases=cases,
    observe=observe,
    reference=best,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Write step_s(B) from the three terms of the task, and a test whether B is allowed.",
        (
            "Rows computed: ceil(B / tile) · tile. Products: max(2 · n_params · rows / flops_per_s,"
            " weights / bytes_per_s). Add the caches."
        ),
        (
            "There are at most some thousand batches: try them all, keep the largest B / step_s(B)"
            " among those allowed."
        ),
    ),
    ranges={"workload['max_batch']": (1, 6007), "workload['bytes_per_param']": (0.5, 2)},
    recall=(
        "Why may a smaller batch give more tokens per second than a larger one?",
        (
            "Matrix units compute whole tiles: a batch just above a multiple of the tile pays for"
            " rows that nobody uses."
        ),
    ),
)
