"""The layouts of a deployment by their names, as `parallel` runs them, each with what a chip has to
do in a pass; `gathered` (FSDP) is priced, not run."""

from collections.abc import Callable
from math import prod

from twophase.theory import sharded_step
from twophase.theory.architecture import Architecture
from twophase.theory.links import Link
from twophase.theory.sharded_pass import Load, Pass
from twophase.theory.sharding import weight_stationary_best_x

Sides = tuple[int, ...]


def load(layout: str, p: Pass, n_chips: int, link: Link) -> Load:
    """What the fullest of the chips has to do, in the squarest mesh that the link allows.
    ValueError for another name, and for a model that the layout cannot cut so."""
    if layout not in LAYOUTS:
        raise ValueError(f"The layouts are {', '.join(LAYOUTS)}; got {layout!r}.")
    return LAYOUTS[layout](p, link.mesh(n_chips))


def sequences_at_once(layout: str, arch: Architecture, n_chips: int, link: Link) -> int:
    """In multiples of how many sequences no chip waits for another: as many as there are stages, or
    chips that sequences are dealt out to."""
    if layout == "stationary":
        return prod(_meshes(arch, link.mesh(n_chips))[0])
    return 1 if layout in ("tensor", "length-split", "sequence") else n_chips


def _stationary(p: Pass, sides: Sides) -> Load:
    return sharded_step.stationary(p, *_meshes(p.arch, sides), all_sides=sides)


def _meshes(arch: Architecture, sides: Sides) -> tuple[Sides, Sides]:
    """The sides of X and of YZ: of those that leave whole heads, the X nearest the best of theory
    (`weight_stationary_best_x`). One axis, behind a switch, is cut in two at any divisor."""
    n = prod(sides)
    if len(sides) == 1:
        cuts: list[tuple[Sides, Sides]] = [((X,), (n // X,)) for X in range(1, n + 1) if n % X == 0]
    else:
        cuts = [(sides[:i], sides[i:]) for i in range(len(sides) + 1)]
    whole = [(x, yz) for x, yz in cuts if arch.N % prod(yz) == 0]
    if not whole:
        raise ValueError(
            f"{arch.N} query heads of {arch.name} do not divide evenly over any side of"
            f" {n:,} chips, as 'stationary' cuts them: take another number of chips, or tensor."
        )
    best = weight_stationary_best_x(arch.D, arch.F, n, max(2, len(sides)), 1 + arch.gated_mlp)
    return min(whole, key=lambda cut: abs(prod(cut[0]) - float(best)))


def _even_heads(cache: str) -> Callable[[Pass, Sides], Load]:
    def cut(p: Pass, sides: Sides) -> Load:
        n = prod(sides)
        if any(own.N % n for own in p.arch.layer_widths):
            raise ValueError(
                f"{p.arch.N} query heads of {p.arch.name} do not divide evenly over {n:,} chips,"
                f" which a cache cut by {'sequence' if cache == 'batch' else 'position'} needs:"
                " take another number of chips, or tensor."
            )
        return sharded_step.tensor(p, sides, cache)

    return cut


LAYOUTS: dict[str, Callable[[Pass, Sides], Load]] = {
    "tensor": sharded_step.tensor,
    "batch-split": _even_heads("batch"),
    "length-split": _even_heads("length"),
    "sequence": sharded_step.sequence,
    "stationary": _stationary,
    "pipeline": lambda p, sides: sharded_step.pipeline(p, prod(sides)),
    "experts": sharded_step.experts,
    "replicas": lambda p, sides: sharded_step.replicas(p, prod(sides)),
    "gathered": sharded_step.gathered,
}
