"""The picture of the family that grows from chapter to chapter: what a member loses over what its
cache takes, and how long its steps last over the context."""

from collections.abc import Collection, Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from twophase.measure.plots import COLORS, figure, label, unit_axis
from twophase.models.quality import Quality

MARKS = "osD^vPX*"


def front(
    members: Mapping[str, Quality],
    S: int,
    step_s: Mapping[str, Mapping[int, float]],
    labels_left: Collection[str] = (),
    labels_below: Collection[str] = (),
) -> Figure:
    """Left: bits per byte over cache bytes per token at `S` tokens, a point for each member at the
    mean of its seeds, a bar from the lowest to the highest, the number of seeds in brackets.
    Right: seconds of a step over the context, {member: {tokens: seconds}}.

    A member has one color on both sides; "≤" stands before one whose loss is an upper bound. The
    names in `labels_left` stand left of their points, for those that have a neighbor on the right;
    those in `labels_below` to the right, but lower.
    ValueError if a context or a time is not positive, there is no member, or one is not known.
    """
    if not members:
        raise ValueError("the picture needs a member; got none.")
    if any(n <= 0 or t <= 0 for points in step_s.values() for n, t in points.items()):
        raise ValueError("contexts and times lie on logarithmic axes: each must be above 0.")
    if unknown := {*step_s, *labels_left, *labels_below} - {*members}:
        raise ValueError(
            f"no member is called {', '.join(sorted(unknown))}; these are: {', '.join(members)}."
        )
    colors = {name: COLORS[i % len(COLORS)] for i, name in enumerate(members)}
    fig, (losses, times) = figure(1, 2, figsize=(9.0, 4.0))
    places = dict.fromkeys(labels_left, (-7.0, -3.0)) | dict.fromkeys(labels_below, (5.0, -12.0))
    _losses(losses, members, S, colors, places)
    for i, (name, points) in enumerate(step_s.items()):
        mark = MARKS[i % len(MARKS)] + "-"
        times.loglog([*points], [*points.values()], mark, color=colors[name], ms=4, label=name)
    label(times, "context [tokens]", "time of a step [s]")
    unit_axis(times, "y", "s")
    contexts = sorted({n for points in step_s.values() for n in points})
    times.set_xticks(contexts, [f"{n:,}" for n in contexts])
    times.minorticks_off()
    if step_s:
        times.legend(fontsize=8)
    return fig


def _losses(
    ax: Axes,
    members: Mapping[str, Quality],
    S: int,
    colors: Mapping[str, str],
    places: Mapping[str, tuple[float, float]],
) -> None:
    """The left side; `places`: where names stand, in points from their own."""
    kept = [m.cache_bytes_per_token(S) for m in members.values()]
    for (name, m), x in zip(members.items(), kept, strict=True):
        low, high = m.ends
        bar = [[m.mean - low], [high - m.mean]]
        ax.errorbar([x], [m.mean], bar, fmt="o", color=colors[name], capsize=3, markersize=5)
        place = places.get(name, (5.0, 4.0))
        ax.annotate(
            f"{'≤ ' if m.is_upper_bound else ''}{name} ({len(m.bits)})",
            (x, m.mean),
            xytext=place,
            ha="right" if place[0] < 0 else "left",
            textcoords="offset points",
            fontsize=8,
        )
    ax.set_xscale("log")
    ax.set_xlim(min(kept) * 0.35, max(kept) * 3)  # room for names on both sides
    label(ax, f"cache per token at {S:,} tokens [bytes]", "bits per byte")
