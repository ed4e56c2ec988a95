"""What the messages of each layout take: on this machine, as fitted and by the clock, and on links
that this machine does not have.

    python -m twophase.parallel.price --ranks 4 --checkpoint gqa
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from twophase.kernels.collectives import CollectiveError, Comm, RankError
from twophase.measure.collectives import sent_bytes
from twophase.measure.links import FittedLink, fit_link, price_s, sending_s
from twophase.measure.tables import Table, si
from twophase.models.generate import complete_batch
from twophase.parallel.formulas import FORMULAS
from twophase.parallel.formulas import sent_bytes as told_bytes
from twophase.parallel.layouts import LAYOUTS, build
from twophase.parallel.run import run_ranks
from twophase.parallel.weights import source_of
from twophase.theory.links import LINKS, Link

SIZES_BYTES = tuple(4**power for power in range(4, 12))  # 256 B to 4 MB
REPEATS = 9
PROMPT = 32


def calibrate(
    n_ranks: int, sizes: Sequence[int] = SIZES_BYTES, repeats: int = REPEATS
) -> FittedLink:
    """Fit the links between n ranks of this machine to all-reduces and all-gathers of these
    sizes, bytes. ValueError as in `fit_link`."""

    def rank(comm: Comm) -> None:
        for n_bytes in sizes:
            x = torch.ones(n_bytes // 4)
            for _ in range(repeats):
                comm.all_reduce(x)
                comm.all_gather(x.tensor_split(comm.size)[comm.rank][: n_bytes // 4 // comm.size])

    return fit_link(run_ranks(n_ranks, rank).log, f"gloo, {n_ranks} ranks here")


@dataclass(frozen=True)
class Priced:
    """One pass of a layout: calls of a rank, bytes of all ranks as traced and as the theory has
    them (None where a router decides), seconds of messages as predicted and by the clock on this
    machine, and on other links."""

    layout: str
    phase: str
    calls: float
    sent_bytes: float
    told_bytes: float | None
    predicted_s: float
    clock_s: float
    elsewhere_s: dict[str, float]


def price_layouts(
    n_ranks: int,
    checkpoint: str = "gqa",
    layouts: Sequence[str] | None = None,
    n_new: int = 8,
    here: Link | None = None,
) -> list[Priced]:
    """Run a prompt of PROMPT tokens and `n_new` decode steps of a batch of as many sequences as
    ranks in each layout that takes the model, and price what its ranks sent in a decode step; of
    "sequence", which sends nothing there, in prefill. `here`: the links of this machine, fitted now
    if not given. ValueError for a layout that is named and
    does not take it."""
    here = calibrate(n_ranks).link if here is None else here
    source, found = source_of(checkpoint), []

    def rank(comm: Comm, layout: str) -> None:
        model = build(layout, source, comm)
        prompts = [[65 + (b + t) % 60 for t in range(PROMPT)] for b in range(comm.size)]
        complete_batch(model, prompts, n_new + 1)

    for layout in layouts or LAYOUTS:
        try:
            log = run_ranks(n_ranks, rank, layout).log
        except RankError as error:
            if layouts or not error.says.startswith("ValueError"):
                raise ValueError(error.says.removeprefix("ValueError: ")) from None
            continue  # this model cannot be cut so
        phase, T, n = ("prefill", PROMPT, 1) if layout == "sequence" else ("decode", 1, n_new)
        events = [e for e in log if e["phase"] == phase]
        told = None
        if layout in FORMULAS:
            told = told_bytes(layout, source.config, n_ranks, T, n_ranks)
        times = price_s(events, here) / n, sending_s(events) / n
        elsewhere = {link.name: price_s(events, link) / n for link in LINKS}
        calls = len([e for e in events if e["rank"] == 0]) / n
        bytes_ = sent_bytes(events) / n, told
        found.append(Priced(layout, phase, calls, *bytes_, *times, elsewhere))
    return found


def table(found: Sequence[Priced]) -> Table:
    """A row for each layout: bytes and seconds of one pass's messages."""
    names = [link.name for link in LINKS]
    rows = [
        [
            priced.layout,
            priced.phase,
            si(priced.sent_bytes, "B"),
            si(priced.predicted_s, "s"),
            si(priced.clock_s, "s"),
            *(si(priced.elsewhere_s[name], "s") for name in names),
        ]
        for priced in found
    ]
    return Table(rows, ["layout", "pass", "sent", "predicted here", "clock here", *names])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the fit and the table. Returns the exit status: 2 for bad input."""
    parser = argparse.ArgumentParser(
        "twophase.parallel.price", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--ranks", type=int, default=4, help="processes of this machine")
    parser.add_argument("--checkpoint", default="gqa", help="of the course, or a directory")
    options = parser.parse_args(arguments)
    try:
        if options.ranks < 2:
            raise ValueError(f"one rank sends nothing: --ranks is at least 2; got {options.ranks}.")
        fitted = calibrate(options.ranks)
        link = fitted.link
        print(
            f"{link.name}: {si(link.sent_bytes_per_s, 'B/s')} and {si(link.hop_s, 's')} a hop;"
            f" misses its own points by {fitted.worst:.0%} at worst, and points that it was not"
            f" fitted to by {fitted.worst_held_out:.0%}."
        )
        print(table(price_layouts(options.ranks, options.checkpoint, here=fitted.link)))
    except (ValueError, CollectiveError, RankError) as error:
        print(f"twophase.parallel.price: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
