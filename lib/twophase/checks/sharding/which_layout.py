"""sharding-which_layout: read what a rank noted of a decode step and say how the model is cut."""

from __future__ import annotations

import random
from collections import Counter

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.checks.sharding import _logs, _odd_logs
from twophase.checks.sharding._logs import LABELS, Events, Model, log, model

wrong = Misconceptions()


def reference(events: Events, m: Model) -> str:
    """The right answer."""
    inside = [e for e in events if e["layer"] is not None]
    sums = [e for e in inside if e["op"] == "all_reduce"]
    whole = m["B"] * m["D"] * m["bytes"]
    if any(e["n_bytes"] < whole for e in sums):
        return "reduced in part"
    if max(Counter(e["layer"] for e in sums).values(), default=0) > 2:
        return "reduced twice"
    ops = {e["op"] for e in inside}
    if not ops:
        return "replicas"
    if "reduce_scatter" in ops:
        return "stationary"
    if ops <= {"send", "receive"}:
        return "pipeline"
    if ops == {"all_gather"}:
        return "gathered"
    if "all_to_all" not in ops:
        return "tensor"
    return "length" if "all_gather" in ops else "batch"


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "vocabulary_counted",
    {'[e for e in events if e["layer"] is not None]': "list(events)"},
    "plausible",
    "You counted what belongs to embedding and head: the logits are gathered in any layout that"
    " cuts the vocabulary. Look at events with a layer.",
)
_add(
    "first_layer_only",
    {'e["layer"] is not None]': 'e["layer"] == 0]'},
    "plausible",
    "You looked at layer 0 only: a fault may sit in any layer, and a stage of a pipeline has few.",
)
_add(
    "sums_of_all_layers_together",
    {'Counter(e["layer"] for e in sums)': 'Counter(e["op"] for e in sums)'},
    "plausible",
    "You counted all-reduces over all layers: two in each layer are right.",
)
_add(
    "mean_over_layers",
    {
        'max(Counter(e["layer"] for e in sums).values(), default=0) > 2': (
            'sum(Counter(e["layer"] for e in sums).values()) > 2 * m["L"] + m["L"] // 2'
        )
    },
    "dashboards that average",
    "One layer that reduces three times is hidden in the mean: count layer by layer.",
)
_add(
    "two_sums_are_one_too_many",
    {"default=0) > 2": "default=0) > 1"},
    "plausible",
    "A layer sums twice by rights: attention's output and the MLP's.",
)
_add(
    "sizes_not_read",
    {'e["n_bytes"] < whole': 'e["n_bytes"] <= 0'},
    "logs read by their names only",
    "You did not compare sizes: an all-reduce of fewer than B·D numbers leaves sequences out.",
)
_add(
    "sent_bytes_for_the_array",
    {'e["n_bytes"] < whole': 'e["sent_bytes"] < whole'},
    "plausible",
    "sent_bytes is what this rank sends, 2(n − 1)/n of the array; n_bytes is the array.",
)
_add(
    "two_bytes_always",
    {'m["B"] * m["D"] * m["bytes"]': 'm["B"] * m["D"] * 2'},
    "calculators for half precision",
    "A number takes m['bytes'] bytes, not always 2.",
)
_add(
    "any_gather_is_fsdp",
    {'if ops == {"all_gather"}': 'if "all_gather" in ops'},
    "plausible",
    "Not every gather is one of weights: beside all-reduces it gathers queries, for a cache cut by"
    " position.",
)
_add(
    "length_for_batch",
    {'"length" if "all_gather"': '"batch" if "all_gather"', 'else "batch"': 'else "length"'},
    "plausible",
    "Exchanged: cut by position queries are gathered, cut by sequence there are two all-to-alls.",
)
_add(
    "layout_before_faults",
    {
        'if any(e["n_bytes"] < whole for e in sums)': (
            'if len({e["op"] for e in inside}) == 1 and any(e["n_bytes"] < whole for e in sums)'
        )
    },
    "plausible",
    "A cache cut by sequence or position has sums as well, and they may be cut short, too: the"
    " faults come first.",
)
_add(
    "silence_is_a_pipeline",
    {'return "replicas"': 'return "pipeline"'},
    "plausible",
    "A stage of a pipeline receives and sends once. Nothing at all is a replica.",
)


def _mixed(m: Model) -> list[tuple[str, Events]]:
    """Logs that two labels seem to fit: the task's order decides."""
    tensor, stationary = log("tensor", m), log("stationary", m)
    outside = [e for e in tensor if e["layer"] is None]
    sums = [e for e in tensor if e["op"] == "all_reduce" and e["layer"] is not None]
    short = _logs.reduced_in_part(sums[:1], m, 0)
    unsummed = [e for e in log("length", m) if e["op"] != "all_reduce"]
    gather = _logs.event("all_gather", 1, m["n"], m["B"] * m["D"] * m["bytes"])
    scattered = [
        _logs.event("reduce_scatter", i, m["n"], m["B"] * m["D"] * m["bytes"])
        for i in (0, m["L"] - 1)
    ]
    sent = _logs.event("send", m["L"] - 1, 2, m["B"] * m["D"] * m["bytes"])
    return [
        ("nothing in layers, something in embedding and head", outside),
        ("three sums in layer 0, one in layer 1, two in layer 2", [sums[0], *sums[:3], *sums[4:]]),
        ("a stage of a pipeline whose layers are summed", [*log("pipeline", m), *sums]),
        ("gathers and exchanges, no sums", unsummed),
        ("gathers, and a send", [*log("gathered", m), sent]),
        ("sums and a gather, no exchange", [*tensor, gather]),
        ("a reduce-scatter in layer 0, sums in the others", [scattered[0], *sums[2:]]),
        ("a reduce-scatter in the last layer, sums in the others", [*sums[:-2], scattered[1]]),
        ("reduce-scatters, and a sum of one sequence", [*stationary, *short]),
        ("reduce-scatters, and three sums in layer 0", [*stationary, *sums[:2], sums[0]]),
    ]


def _one_layer() -> list[tuple[str, Events, Model]]:
    """All that a model of one layer may note. And one log of two models: whoever remembers by the
    log is wrong there."""
    m = model(random.Random("one layer"), B=4, n=4, L=1, bytes=2)
    tensor = log("tensor", m)
    return [
        *((f"{label}, one layer", log(label, m), m) for label in LABELS),
        ("one layer, a sum of one sequence", _logs.reduced_in_part(tensor, m, 1), m),
        ("one layer, a sum made twice", _logs.reduced_twice(tensor, 1), m),
        ("one layer, sums of half the width", tensor, {**m, "D": 2 * m["D"]}),
        ("one layer, sums of half the batch", tensor, {**m, "B": 2 * m["B"]}),
        ("one layer, sums of numbers half as wide", tensor, {**m, "bytes": 2 * m["bytes"]}),
    ]


def cases(rng: random.Random) -> list[Case]:
    """Every layout with the vocabulary cut and whole; each fault in the first, a middle and the
    last place; 2 and 8 ranks; one sequence; one layer; then unseen ones."""

    def case(name: str, events: Events, m: Model, public: bool = True) -> Case:
        return Case(name, (events, m), public=public)

    m = model(rng, L=3, bytes=2)
    shown = [case(label, log(label, m), m) for label in LABELS]
    whole = [
        case(f"{label}, vocabulary on every rank", log(label, w, vocabulary=False), w)
        for label in LABELS
        for w in [model(rng, L=2, n=8, bytes=4)]
    ]
    faults = []
    for label in ("tensor", "batch", "length"):
        for at in (0, 3, -1):
            events = log(label, m)
            faults += [
                case(f"{label}, a sum of one sequence", _logs.reduced_in_part(events, m, at), m),
                case(f"{label}, a sum made twice", _logs.reduced_twice(events, at), m),
            ]
    both = _logs.reduced_twice(_logs.reduced_in_part(log("tensor", m), m, 0), 4)
    turned = _logs.reduced_in_part(_logs.reduced_twice(log("tensor", m), 0), m, 4)
    lacking = _logs.reduced_in_part(log("tensor", m), m, 2, n_rows=m["B"] - 1)
    wide, narrow = (model(rng, L=2, bytes=b) for b in (4, 1))
    lacking_wide, lacking_narrow = (
        _logs.reduced_in_part(log("tensor", w), w, 1, n_rows=w["B"] - 1) for w in (wide, narrow)
    )
    deep = model(rng, L=67, n=2, bytes=4)
    last_twice = _logs.reduced_twice(log("length", deep), -1)
    alone = model(rng, n=1, L=2, bytes=2)
    stage = [{**e, "layer": 1} for e in log("pipeline", m)]
    unseen = [
        case(f"log {i + 1}", log(rng.choice(LABELS), u, rng.random() < 0.5), u, public=False)
        for i in range(4)
        for u in [model(rng, n=rng.choice((2, 4, 8)))]
    ]
    return [
        *shown,
        *whole,
        *faults,
        case("both faults", both, m),
        case("both faults, the second one in an earlier layer", turned, m),
        case("tensor, a sum that lacks one sequence", lacking, m),
        case("the same in numbers of 4 bytes", lacking_wide, wide),
        case("the same in numbers of 1 byte", lacking_narrow, narrow),
        case("all of them, in numbers of 1 byte", log("tensor", narrow), narrow),
        case("67 layers, one sum made twice", _logs.reduced_twice(log("tensor", deep), 77), deep),
        case("67 layers", log("length", deep), deep),
        case("67 layers, the last sum made twice", last_twice, deep),
        *(case(*given) for given in _one_layer()),
        case("a middle stage, its events in layer 1", stage, m),
        case("the last stage, which only receives", stage[:1], m),
        case("the first stage, which only sends", stage[1:], m),
        *(case(name, events, m) for name, events in _mixed(m)),
        *(case(name, events, _odd_logs.MODEL) for name, events in _odd_logs.odd()),
        case("tensor, one rank", log("tensor", alone), alone),
        *unseen,
    ]


EXERCISE = Exercise(
    id="sharding-which_layout",
    title="Which layout made this log?",
    kind="trace",
    points=4,
    minutes=20,
    entries=("diagnose",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Leave out events whose layer is None. Then which kinds of op are left?",
        (
            "Faults first: an all-reduce with fewer than B·D·bytes; a layer with more than two."
            " Then the ops: none, reduce_scatter, sends, gathers alone, all_to_all or not."
        ),
        (
            "replicas: none; stationary: reduce_scatter; pipeline: only send and receive; gathered:"
            " only all_gather; tensor: no all_to_all; length: all_to_all and all_gather; batch: the"
            " rest."
        ),
    ),
    ranges={"m['L']": (1, 67)},
    recall=(
        "A rank's log shows two all-reduces a layer, and now and then three. What is wrong?",
        "Something is summed twice: after the first sum every rank has the whole, and the second"
        " counts it n times.",
    ),
)
