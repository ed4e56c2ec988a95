"""Bytes and times of the collectives that chips use to share work.

Every chip takes part, and the model of each is a ring: n - 1 times a chip hands on one of n pieces.
What a chip *sends* therefore has a factor (n - 1) / n, whatever the wires are; how long that takes
depends on them:

- a closed ring, used both ways (an axis of a TPU slice with wraparound): pieces go both ways round;
- an open line (the same axis without wraparound): all pieces for the last chip cross its one link;
- a switch (NVLink, InfiniBand): a ring in one direction, at the full rate of a chip's port.

`link_bytes_per_s` is what one chip can send along one axis, over all its wires of that axis. An
array that is gathered or summed along several axes travels on all of them at once: that is exact
where they are equally long, and the least that it takes elsewhere. Sources: Patarasuk and Yuan
2009; Austin et al., How to Scale Your Model, sharding.
"""

from twophase.theory._domain import Number, formula
from twophase.theory._ops import floor_div


@formula(whole=("n_chips",))
def all_gather_sent_bytes(array_bytes: Number, n_chips: Number) -> Number:
    """Bytes that each chip sends so that all have the whole array of `array_bytes`, of which each
    had 1 / n_chips. A reduce-scatter of an array of that size, which sums and leaves each chip its
    piece, sends as many."""
    return array_bytes * (n_chips - 1) / n_chips


@formula(whole=("n_chips",))
def all_reduce_sent_bytes(array_bytes: Number, n_chips: Number) -> Number:
    """Bytes that each chip sends so that all have the sum of their arrays of `array_bytes` each: a
    reduce-scatter, then an all-gather."""
    return 2 * all_gather_sent_bytes(array_bytes, n_chips)


@formula(whole=("n_chips",))
def all_to_all_sent_bytes(held_bytes: Number, n_chips: Number) -> Number:
    """Bytes that each chip sends if it holds `held_bytes`, an equal part of them for each chip, and
    keeps its own."""
    return held_bytes * (n_chips - 1) / n_chips


@formula(whole=("n_chips",))
def ring_hops(n_chips: Number, closed: bool = True) -> Number:
    """Hops that the last piece of an all-gather makes along one axis: half way round a closed ring
    that is used both ways, all the way along an open line or a ring in one direction."""
    return floor_div(n_chips, 2) if closed else n_chips - 1


@formula(zero_ok=("n_hops", "hop_s"), whole=("n_chips", "n_axes"))
def all_gather_s(
    array_bytes: Number,
    n_chips: Number,
    link_bytes_per_s: Number,
    n_axes: Number = 1,
    n_hops: Number = 0,
    hop_s: Number = 0,
    closed: bool = True,
) -> Number:
    """Seconds of an all-gather, or of a reduce-scatter: hops, and bytes over the rate of all axes.
    On an open line a chip at the end has one wire of two: twice the time."""
    sent = all_gather_sent_bytes(array_bytes, n_chips)
    return n_hops * hop_s + (1 if closed else 2) * sent / (n_axes * link_bytes_per_s)


@formula(zero_ok=("n_hops", "hop_s"), whole=("n_chips", "n_axes"))
def all_reduce_s(
    array_bytes: Number,
    n_chips: Number,
    link_bytes_per_s: Number,
    n_axes: Number = 1,
    n_hops: Number = 0,
    hop_s: Number = 0,
    closed: bool = True,
) -> Number:
    """Seconds of an all-reduce: a reduce-scatter, then an all-gather. `n_hops` are those of one of
    them."""
    return 2 * all_gather_s(array_bytes, n_chips, link_bytes_per_s, n_axes, n_hops, hop_s, closed)


@formula(zero_ok=("n_hops", "hop_s"), whole=("n_chips",))
def all_to_all_s(
    held_bytes: Number,
    n_chips: Number,
    link_bytes_per_s: Number,
    n_hops: Number = 0,
    hop_s: Number = 0,
    closed: bool = True,
    switched: bool = False,
) -> Number:
    """Seconds of an all-to-all on one axis: through a switch, what a chip sends over its rate; on a
    ring, each piece loads every link on its way, so that the middle of the axis is the limit. On a
    mesh the same holds of each axis by itself, with all that a chip holds: `links` takes the
    longest.

    For a closed ring of even length this is a quarter of what gathering the same array takes, the
    factors (n - 1) / n left out.
    """
    if switched:
        moved = all_to_all_sent_bytes(held_bytes, n_chips)
    else:
        links = floor_div(n_chips * n_chips, 4)  # of all pieces of a chip, the shorter way round
        moved = (1 if closed else 2) * held_bytes * links / n_chips
    return n_hops * hop_s + moved / link_bytes_per_s
