"""sharding-choose: a layout for this model, these chips and this batch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import FORMULA, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions
from twophase.checks.sharding._layouts import LAYOUTS, fits, loads, parts, sending_s, sent, step_s
from twophase.checks.sharding._machines import (
    ETHERNET,
    H100,
    LLAMA,
    SMALL,
    V5E,
    WORKED,
    one_other,
    uncommon,
)
from twophase.checks.sharding._rooms import BATCH, CHIPS, POSITIONS, rooms

wrong = Misconceptions()

Problem = dict[str, Any]
NEAR = 1.05
Choice = tuple[str | None, dict[str, float]]


def chosen(
    time_s: Callable[[str, Problem], float] = step_s,
    room: Callable[[str, Problem], bool] = fits,
    among: tuple[str, ...] = LAYOUTS,
    by: Callable[[str, Problem], float] | None = None,
) -> Callable[..., Choice]:
    """The quickest (or the first `by` something else) of those that fit, and the times of all that
    fit; with nothing replaced it is right."""

    def choose(model: Problem, workload: Problem, machine: Problem) -> Choice:
        p = {**model, **workload, **machine}
        times = {layout: time_s(layout, p) for layout in LAYOUTS if room(layout, p)}
        first = by or time_s
        open_to = [layout for layout in among if layout in times]
        return min(open_to, key=lambda layout: first(layout, p), default=None), times

    return choose


def _add(slug: str, answer: Callable[..., Choice], seen: str, says: str) -> None:
    wrong.add(slug, answer, seen, says)


def _work_s(layout: str, p: Problem) -> float:
    _, read, flops = loads(layout, p)
    return float(max(read / p["bytes_per_s"], flops / p["flops_per_s"]))


def _without_hops(layout: str, p: Problem) -> float:
    return step_s(layout, {**p, "hop_s": 0.0})


def _bytes_left_out(layout: str, p: Problem) -> float:
    return step_s(layout, {**p, "link_bytes_per_s": 1e30})


def _weights_alone_fit(layout: str, p: Problem) -> bool:
    return bool(loads(layout, {**p, "S": 0})[0] <= p["memory_bytes"])


def _sent_alone(layout: str, p: Problem) -> float:
    return sent(parts(layout, p, p["n_chips"]), p["n_chips"])


def _cut_heads_evenly(layout: str, p: Problem) -> float:
    """As if KV heads were never copied."""
    return step_s("length" if layout == "tensor" else layout, p) - (
        sending_s("length", p) - sending_s("tensor", p) if layout == "tensor" else 0.0
    )


def _fits_evenly(layout: str, p: Problem) -> bool:
    return fits("length" if layout == "tensor" else layout, p)


def _fractions_of_sequences(layout: str, p: Problem) -> float:
    """As if a sequence could be halved."""
    if layout != "batch":
        return step_s(layout, p)
    return step_s("length", p) - sending_s("length", p) + sending_s("batch", p)


def _whole_positions(layout: str, p: Problem) -> Problem:
    """As if every chip held as many positions as the fullest one."""
    n = p["n_chips"]
    return {**p, "S": n * -(-p["S"] // n)} if layout == "length" else p


def _reading_alone(layout: str, p: Problem) -> float:
    return float(loads(layout, p)[1] / p["bytes_per_s"] + sending_s(layout, p))


def _one_layer(layout: str, p: Problem) -> float:
    return _work_s(layout, p) + sending_s(layout, {**p, "L": 1})


_add(
    "nothing_is_sent",
    chosen(_work_s),
    "planners that do not count communication",
    "You left out what is sent: it is part of every step.",
)
_add(
    "hops_left_out",
    chosen(_without_hops),
    "bandwidth alone",
    "You left out the hops: with small batches they are nearly all of the sending.",
)
_add(
    "bytes_left_out",
    chosen(_bytes_left_out),
    "latency alone",
    "You left out the bytes: with large batches, or gathered weights, they are nearly all of the"
    " sending.",
)
_add(
    "room_left_out",
    chosen(room=lambda layout, p: True),
    "plausible",
    "You did not look at the memory: weights and caches of the chip must fit.",
)
_add(
    "room_for_weights",
    chosen(room=_weights_alone_fit),
    "plausible",
    "You made room for the weights only: caches lie in the same memory.",
)
_add(
    "kv_heads_never_copied",
    chosen(_cut_heads_evenly, _fits_evenly),
    "calculators that divide the cache by the chips",
    "With more chips than KV heads each chip still keeps one whole head: the cache is copied.",
)
_add(
    "fewest_bytes_sent",
    chosen(by=_sent_alone),
    "plausible",
    "You took the layout that sends least. What counts is the whole step: reading and computing,"
    " then sending.",
)
_add(
    "sequences_in_halves",
    chosen(_fractions_of_sequences),
    "plausible",
    "Cut by sequence, a chip has whole sequences: of three on four chips, one chip has none.",
)
_add(
    "whole_positions",
    chosen(
        lambda layout, p: step_s(layout, _whole_positions(layout, p)),
        lambda layout, p: fits(layout, _whole_positions(layout, p)),
    ),
    "heads and sequences are whole, so positions, too",
    "You rounded positions up. Heads and sequences are whole in this task; cut by position, a chip"
    " holds and reads 1/n of all caches.",
)
_add(
    "computing_left_out",
    chosen(_reading_alone),
    "“decode is memory bound”",
    "You left out computing: with a large batch and short contexts it takes longer than reading.",
)
_add(
    "sends_of_one_layer",
    chosen(_one_layer),
    "plausible",
    "You counted the collectives of one layer: there are L of them.",
)
_add(
    "always_tensor",
    chosen(among=("tensor",)),
    "“generation: model parallelism only”",
    "You always cut the cache by head. With few KV heads and long contexts another cut is quicker;"
    " and a small model may do best in replicas.",
)
_add(
    "always_by_length",
    chosen(among=("length",)),
    "plausible",
    "You always cut by position: where heads divide evenly its exchange is paid for nothing.",
)


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """The times as they are; whether the choice has room, and is within 5% of the best."""
    model, workload, machine = case.args
    pair = plain(answer.call("choose", model, workload, machine))
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return {"the answer": "no pair of a name and a dict", "times": None, "the choice": None}
    found, times = pair
    p = {**model, **workload, **machine}
    right = {layout: step_s(layout, p) for layout in LAYOUTS if fits(layout, p)}
    if not right:
        good = found is None
    else:
        near = [layout for layout, t in right.items() if t <= NEAR * min(right.values())]
        good = found in near
    return {"the answer": "a pair", "times": times, "the choice": "good" if good else "not good"}


def cases(rng: random.Random) -> list[Case]:
    """What people run, on fast and slow links; small models; few KV heads; nothing fits; large
    batches; full to the last byte, and a byte less; then unseen ones."""

    def case(
        name: str, model: Problem, B: int, S: int, n: int, machine: Problem, public: bool = True
    ) -> Case:
        given = (model, {"B": B, "S": S}, {**machine, "n_chips": n})
        return Case(f"{name}, B={B}, S={S:,}, {n} chips", given, public=public)

    one_head = {**LLAMA, "K": 1}
    listed = [
        case("Llama-3-70B, H100, nothing fits", LLAMA, 4, 8192, 1, H100),
        case("Llama-3-70B, H100, nothing fits", LLAMA, 4096, 32768, 8, H100),
        case("Llama-3-70B, H100, more chips than KV heads", LLAMA, 3, 131072, 16, H100),
        case("Llama-3-70B, H100, more chips than KV heads", LLAMA, 8, 32768, 16, H100),
        case("Llama-3-70B, Ethernet, one long sequence", LLAMA, 1, 131072, 16, ETHERNET),
        case("Llama-3-70B, v5e, large batch", LLAMA, 8192, 128, 32, V5E),
        case("Llama-3-70B, v5e", LLAMA, 100, 1024, 16, V5E),
        case("Llama-3-70B, v5e, the second one 4% slower", LLAMA, 64, 1001, 16, V5E),
        case("Llama-3-70B, H100, the second one 7% slower", LLAMA, 256, 1000, 8, H100),
        case("the worked model, H100, short", WORKED, 1024, 16, 2, H100),
        case("the worked model, H100, an odd batch", WORKED, 1023, 16, 2, H100),
        case("Llama-3-70B in fp8, H100", {**LLAMA, "bytes": 1}, 8, 1024, 8, H100),
        case("in fp8 with one KV head, v5e", {**one_head, "bytes": 1}, 64, 2048, 8, V5E),
        case("a small model in float32, v5e", {**SMALL, "bytes": 4}, 8, 1024, 8, V5E),
        case("a small model, H100, alone", SMALL, 8, 1024, 1, H100),
        case("a small model, Ethernet, three chips", SMALL, 7, 4095, 3, ETHERNET),
        case("a small model, Ethernet", SMALL, 64, 2048, 8, ETHERNET),
        *(Case(name, given) for name, given in {**one_other(), **uncommon()}.items()),
        *(case(name, m, BATCH, POSITIONS, CHIPS, chip) for name, m, chip in rooms()),
    ]
    unseen: list[Case] = []
    while len(unseen) < 6:
        model = rng.choice((LLAMA, SMALL, WORKED, one_head))
        machine = rng.choice((H100, V5E, ETHERNET))
        B, S, n = rng.randrange(1, 600), rng.randrange(64, 40000), rng.choice((2, 4, 8, 16))
        if clear({**model, "B": B, "S": S, **machine, "n_chips": n}):
            unseen.append(case("unseen", model, B, S, n, machine, public=False))
    assert all(clear({**m, **w, **h}, 1.045, 1.055) for m, w, h in (c.args for c in listed))
    return [*listed, *unseen]


def clear(p: Problem, near: float = 1.02, far: float = 1.1) -> bool:
    """Whether each layout takes at most `near` of the best one's time, or `far` and more: none is
    near 5% slower."""
    times = [step_s(layout, p) for layout in LAYOUTS if fits(layout, p)]
    return not any(near < t / min(times) < far for t in times)


EXERCISE = Exercise(
    id="sharding-choose",
    title="A layout for this model, these chips, this batch",
    kind="judgement",
    points=6,
    minutes=30,
    entries=("choose",),
    cases=cases,
    observe=observe,
    reference=chosen(),
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "For each layout three numbers: bytes held, seconds of work, seconds of sending. Strike"
        " out what does not fit, then compare sums.",
        (
            "Cut weights are held and read as P/n; gathered ones are held as P/n and read whole."
            " Of the cache a chip keeps ⌈K/n⌉ of K heads, ⌈B/n⌉ sequences, or 1/n."
        ),
        (
            "Sending: L·(bytes of the exercise before / link + hops·hop_s), n − 1 hops for a gather"
            " or an exchange, twice that for an all-reduce."
        ),
    ),
    ranges={"machine['n_chips']": (1, 32)},
    recall=(
        "Eight KV heads, thirty-two chips, long contexts: which cut of the cache, and why?",
        "By sequence or position: by head each chip would keep a whole head, the cache four times.",
    ),
)
