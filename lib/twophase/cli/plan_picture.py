"""A plan as a picture, to stand beside its report: what lies in a chip's memory, and what a larger
or smaller batch would mean for the time per token and the rate."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from twophase.theory.architecture import Architecture
from twophase.theory.deployment import Deployment
from twophase.theory.expected import Expected, expect
from twophase.theory.hardware import Hardware
from twophase.theory.plan import Plan, deployment

MOST_POINTS = 24
GB, MS = 1e9, 1e-3


def batches(most: int, own: int) -> list[int]:
    """Batches from 1 to the largest, evenly spread by their logarithm, the plan's own among them;
    at most `MOST_POINTS` + 1."""
    steps = MOST_POINTS - 1
    spread = {round(most ** (i / steps)) for i in range(MOST_POINTS)}
    return sorted(b for b in spread | {own} if 1 <= b <= max(most, own))


def over_batches(d: Deployment, plan: Plan) -> list[tuple[int, Expected]]:
    """What to expect of each of these batches, everything else as in the plan."""
    w = plan.workload
    return [
        (B, expect(d.with_workload(replace(w, batch=B))))
        for B in batches(plan.memory.max_batch, w.batch)
    ]


def words(plan: Plan) -> str:
    """What the picture shows, for whoever does not see it."""
    m = plan.memory
    text = (
        f"Memory of a chip: {m.weight_bytes / GB:.1f} GB of weights, {m.cache_bytes / GB:.1f} GB of"
        f" caches and {m.engine_bytes / GB:.1f} GB that an engine sets aside, of"
        f" {m.usable_bytes / GB:.1f} GB usable."
    )
    e = plan.expected
    if e is None:
        return text + " It does not fit, so there are no times."
    return (
        f"{text} Beside it time per token and rate over the batch, floor or ceiling and expected;"
        f" at batch {plan.workload.batch:,} {e.expected_tpot_s / MS:.3g} ms are expected."
    )


def draw(
    arch: Architecture, chip: Hardware, plan: Plan, path: Path, draft: Architecture | None = None
) -> None:
    """Draw into a file; `draft`: the plan's, if it has one. OSError or ValueError if it cannot be
    written or is no picture's name."""
    from matplotlib import style
    from matplotlib.figure import Figure  # pyplot, and the house's plots with torch, take longer

    with style.context("tableau-colorblind10"):
        if plan.expected is None:
            fig = Figure(figsize=(4.2, 3.6), layout="constrained")
            _memory(fig.subplots(), plan)
        else:
            fig = Figure(figsize=(11.4, 3.6), layout="constrained")
            axes = fig.subplots(1, 3)
            _memory(axes[0], plan)
            found = over_batches(deployment(arch, chip, plan.workload, draft), plan)
            _times(axes[1], plan, found)
            _rates(axes[2], plan, found)
        fig.savefig(path)


def _memory(ax: Any, plan: Plan) -> None:
    m, bottom = plan.memory, 0.0
    parts = [
        ("weights", m.weight_bytes),
        ("caches", m.cache_bytes),
        ("set aside (expected)", m.engine_bytes),
    ]
    for i, (name, size) in enumerate(parts):
        ax.bar(0, size / GB, bottom=bottom / GB, color=f"C{i}", width=0.6, label=name)
        bottom += size
    ax.axhline(m.usable_bytes / GB, color="black", linewidth=1, label="usable")
    ax.axhline(m.capacity_bytes / GB, color="black", linewidth=1, linestyle=":", label="capacity")
    ax.set(xlim=(-0.6, 2.4), xticks=[], ylim=(0, 1.1 * max(bottom, m.capacity_bytes) / GB))
    ax.legend(loc="center right", fontsize=8)
    ax.set(xlabel="a chip", ylabel="memory [GB]", title="Memory")


def _times(ax: Any, plan: Plan, found: list[tuple[int, Expected]]) -> None:
    B = [one for one, _ in found]
    ax.plot(B, [e.expected_tpot_s / MS for _, e in found], color="C0", label="expected")
    low, high = zip(*(e.expected_tpot_range_s for _, e in found), strict=True)
    band = [s / MS for s in low], [s / MS for s in high]
    ax.fill_between(B, *band, color="C0", alpha=0.2, label="eight of ten runs")
    floor = [e.tpot_floor_s / MS for _, e in found]
    ax.plot(B, floor, color="C1", linestyle="--", label="floor")
    ax.axvline(plan.workload.batch, color="black", linewidth=1, linestyle=":", label="this plan")
    ax.set(xscale="log", ylim=(0, None))
    ax.set(xlabel="batch", ylabel="time per token [ms]", title="Time per token")
    ax.legend(fontsize=8)


def _rates(ax: Any, plan: Plan, found: list[tuple[int, Expected]]) -> None:
    B, requests = [one for one, _ in found], plan.workload.n_output is not None
    rates = [
        e.expected_tokens_per_s if requests else e.expected_decode_tokens_per_s for _, e in found
    ]
    most = [e.tokens_ceiling_per_s if requests else b / e.tpot_floor_s for b, e in found]
    ax.plot(B, rates, color="C0", label="expected")
    ax.plot(B, most, color="C1", linestyle="--", label="ceiling")
    ax.axvline(plan.workload.batch, color="black", linewidth=1, linestyle=":", label="this plan")
    room = plan.memory.expected_max_batch
    if 0 < room < B[-1]:
        ax.axvline(room, color="C2", linewidth=1, linestyle="-.", label="room of an engine")
    ax.set(xscale="log", yscale="log")
    ax.legend(fontsize=8)
    what = "output" if requests else "decoding"
    ax.set(xlabel="batch", ylabel=f"{what} [tokens/s]", title="Rate")
