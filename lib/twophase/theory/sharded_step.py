"""A pass of a model on the chips of a mesh: what the fullest chip holds, reads and computes under a
layout, and what it sends.

Heads are cut as `layout.chip_part` says, layers and experts are dealt out whole; whatever else is
cut, is cut evenly. Experts are reached evenly.
"""

from dataclasses import replace
from math import prod

from twophase.theory import messages
from twophase.theory._ops import ceil_div
from twophase.theory.architecture import Architecture
from twophase.theory.grid import Grid
from twophase.theory.layout import chip_part
from twophase.theory.messages import Messages
from twophase.theory.sharded_grid import combined
from twophase.theory.sharded_pass import Load, Pass

CACHES = ("heads", "batch", "length")


def tensor(p: Pass, sides: tuple[int, ...], cache: str = "heads") -> Load:
    """Heads, columns, rows and vocabulary over all chips. The cache is cut by "heads" (copied where
    there are more chips than KV heads, or latents), by sequence ("batch") or position ("length");
    ValueError for another word, and in the latter two ways for what is not keys and values, whose
    messages are others."""
    if cache not in CACHES:
        raise ValueError(f"A cache is cut by one of {', '.join(CACHES)}; got {cache!r}.")
    if cache == "heads":
        return combined(p, Grid(tp=chips(sides)), lambda _: sides)
    _check_keys(p.arch, f"a cache cut by {cache}")
    arch, n = p.arch, chips(sides)
    once = messages.tensor_part(p.n_tokens, arch.D, sides, p.bytes_per_activation)
    layer = (*once, *once)
    widths = (p.n_tokens, arch.N, arch.K, arch.H, sides, p.bytes_per_activation)
    if cache == "batch":
        kept = p.caches(arch, ceil_div(p.B, n), p.S)
        layer += messages.batch_split_attention(*widths)
    else:
        ring = replace(arch, window=arch.window and ceil_div(arch.window, n))
        kept = p.caches(ring, p.B, ceil_div(p.S, n))
        layer += messages.length_split_attention(*widths)
    return Load(
        weight_bytes=p.weights(arch) / n,
        cache_bytes=kept,
        weight_read_bytes=p.weights_read(arch, p.n_tokens) / n,
        cache_read_bytes=p.read_again(kept, arch),
        flops=p.flops(arch, p.B) / n,
        messages=messages.repeated(layer, arch.L) + _vocabulary(p, sides),
    )


def stationary(
    p: Pass,
    x_sides: tuple[int, ...],
    yz_sides: tuple[int, ...],
    all_sides: tuple[int, ...] | None = None,
) -> Load:
    """2D weight-stationary: D over X; MLP columns and heads over YZ; in attention the batch over X,
    so that the cache is cut by both. `all_sides`: of all chips together, if they are not on the
    axes of X and YZ but behind one switch. ValueError for experts, and for layers without keys."""
    _check_keys(p.arch, "stationary")
    if p.arch.moe is not None:
        raise ValueError(f"{p.arch.name} has experts, which 'stationary' does not cut both ways.")
    arch, n = p.arch, chips(x_sides) * chips(yz_sides)
    wide_in = (2 if arch.gated_mlp else 1) * arch.F
    cut = (x_sides, yz_sides, p.bytes_per_activation)
    mlp = messages.weight_stationary_part(p.n_tokens, arch.D, wide_in, arch.F, *cut)
    qkv, out = (arch.N + 2 * arch.K) * arch.H, arch.N * arch.H
    attention = messages.weight_stationary_part(p.n_tokens, arch.D, qkv, out, *cut)
    kept = p.caches(chip_part(arch, prod(yz_sides)), ceil_div(p.B, prod(x_sides)), p.S)
    return Load(
        weight_bytes=p.weights(arch) / n,
        cache_bytes=kept,
        weight_read_bytes=p.weights_read(arch, p.n_tokens) / n,
        cache_read_bytes=p.read_again(kept, p.arch),
        flops=p.flops(arch, p.B) / n,
        messages=messages.repeated(attention + mlp, arch.L)
        + _vocabulary(p, all_sides or x_sides + yz_sides),
    )


def gathered(p: Pass, sides: tuple[int, ...]) -> Load:
    """FSDP: weights in pieces, each layer's gathered before use; sequences dealt out, or, where
    there are fewer than chips, left to some of them: the others wait."""
    arch, n = p.arch, chips(sides)
    own = ceil_div(p.B, n)
    kept = p.caches(arch, own, p.S)
    read = p.weights_read(arch, own * p.T)  # of experts only those that the chip's tokens visit
    needed = p.weights_read(arch, p.n_tokens)
    return Load(
        weight_bytes=p.weights(arch) / n,
        cache_bytes=kept,
        weight_read_bytes=read,
        cache_read_bytes=p.read_again(kept, p.arch),
        flops=p.flops(arch, own),
        messages=messages.repeated(
            messages.gathered_part(needed / arch.L, sides, bytes_per_param=1), arch.L
        ),
    )


def sequence(p: Pass, sides: tuple[int, ...]) -> Load:
    """Positions of a prompt over all chips, weights and caches whole on each: keys and values are
    gathered. A decode step has one position, and every chip does all of it. ValueError for layers
    that keep something else."""
    _check_keys(p.arch, "sequence")
    arch, n = p.arch, chips(sides) if p.T > 1 else 1
    kept = p.caches(arch, p.B, p.S)
    gathering = messages.sequence_attention(p.n_tokens, arch.K, arch.H, sides, p.bytes_per_kv)
    rest = messages.logits_part(p.B * p.n_logits, arch.V, sides, summed=True)
    return Load(
        weight_bytes=p.weights(arch),
        cache_bytes=kept,
        weight_read_bytes=p.weights_read(arch, -(-p.n_tokens // n)),  # of the fullest chip
        cache_read_bytes=p.read_again(kept, p.arch),
        flops=p.flops(arch, p.B) / n,
        messages=messages.repeated(gathering, arch.L) + rest if n > 1 else (),
    )


def pipeline(p: Pass, n_stages: int) -> Load:
    """Layers dealt out to stages: `sharded_grid` with nothing else. ValueError as in `stages`."""
    return combined(p, Grid(pp=n_stages))


def experts(p: Pass, sides: tuple[int, ...]) -> Load:
    """Experts dealt out whole, everything else copied, sequences dealt out with their caches: a
    token travels to its experts and back. Where sequences do not divide, the chip that has the
    most of them sends and attends the most; experts work for all. ValueError for a model without
    experts, or with fewer than chips."""
    n = chips(sides)
    if p.arch.moe is None:
        raise ValueError(f"{p.arch.name} has no experts to deal out: take another layout.")
    return combined(p, Grid(dp=n, ep=n), lambda group: sides if group > 1 else (1,))


def replicas(p: Pass, n_replicas: int) -> Load:
    """The whole model on each chip, sequences dealt out: nothing is sent."""
    return combined(p, Grid(dp=n_replicas))


def chips(sides: tuple[int, ...]) -> int:
    """Chips of a mesh with these sides. ValueError unless they are whole numbers of at least 1."""
    if not all(type(side) is int and side >= 1 for side in sides):
        raise ValueError(f"A mesh has sides of whole numbers of at least 1; got {sides!r}.")
    return prod(sides)


def _vocabulary(p: Pass, sides: tuple[int, ...]) -> Messages:
    widths = (p.n_tokens, p.B * p.n_logits, p.arch.D, p.arch.V, sides, p.bytes_per_activation)
    return messages.vocabulary_part(*widths)


def _check_keys(arch: Architecture, layout: str) -> None:
    if other := set(arch.layer_kinds) - {"full", "sliding"}:
        raise ValueError(
            f"{arch.name} keeps no keys and values in all layers (it has {', '.join(sorted(other))}"
            f"), and {layout} moves those: take tensor, pipeline, experts or replicas."
        )
