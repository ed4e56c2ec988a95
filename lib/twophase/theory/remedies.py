"""What would make a deployment fit that does not."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from twophase.theory.deployment import Deployment
from twophase.theory.grid import Grid
from twophase.theory.weight_format import stored_bytes_per_value as stored

# the mildest first
NARROWER = {"weights": ("int8", "int4"), "kv": ("fp8",)}

Change = dict[str, int | str | Grid]  # fields of the workload, and what they would have to be


def remedies(d: Deployment) -> tuple[Change, ...]:
    """Changes of the workload, each of which fits by itself; none if it fits as it is.

    First the largest batch at this context and the longest context at this batch, then the fewest
    chips, then the fewest with narrower weights, a narrower cache, both: only those that need fewer
    chips than every milder one, and nothing after one that needs no more than there are.
    """
    w = d.w
    most = d.max_batch(w.context)
    if w.batch <= most:
        return ()
    longest = d.max_context(w.batch) or 0
    shorter = longest >= (w.n_prompt or 1) + (w.n_output or 0)
    smaller: list[Change] = [{"batch": most}] if most else []
    return (*smaller, *([Change(context=longest)] if shorter else []), *_chips(d))


def _chips(d: Deployment) -> Iterator[Change]:
    fewest: int | None = None
    for formats in _formats(d):
        found = d.with_workload(replace(d.w, **formats))  # type: ignore[arg-type]
        if found.fits(d.w.batch, d.w.context):
            yield {**formats}
            return
        needed = found.chips_needed(d.w.batch, d.w.context)
        if needed is not None and (fewest is None or needed < fewest):
            fewest = needed
            grid = found.on(needed).w.grid  # with as many chips in a copy
            yield {"n_chips": needed, **({} if grid is None else {"grid": grid}), **formats}
    if (
        fewest is None and d.w.layout is None and d.w.grid is None and d.w.split_cache == "heads"
    ):  # each chip's copy of the cache is too much
        evenly = d.with_workload(replace(d.w, split_cache="evenly"))
        yield from ({"split_cache": "evenly", **change} for change in _chips(evenly))


def _formats(d: Deployment) -> Iterator[dict[str, str]]:
    """The formats as they are, then every narrower choice of one or both."""
    choices = [
        ({}, *({name: f} for f in formats if stored(f) < stored(given)))
        for (name, formats), given in zip(NARROWER.items(), (d.w.weights, d.w.kv), strict=True)
    ]
    for weights, kv in product(*choices):
        yield {**weights, **kv}
