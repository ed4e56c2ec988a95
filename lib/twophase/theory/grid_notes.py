"""What a plan on a grid of chips takes for granted, and what to look at twice, in sentences."""

from twophase.theory.architecture import Architecture
from twophase.theory.grid import Grid
from twophase.theory.layout import uneven_cuts
from twophase.theory.sharded_deployment import ShardedDeployment

KEPT = {
    "latents whole on each": {"mla", "compressed"},
    "caches by KV head": {"full", "sliding", "chosen"},
    "states by head": {"state"},
}


def assumed(d: ShardedDeployment, grid: Grid) -> list[str]:
    """How the chips share the model, what carries their messages, and who gets the visits."""
    chips = f"{grid.n_chips:,} chips" if grid.n_chips > 1 else "one chip"
    lines = [f"{chips}: {', '.join(_ways(d, grid))}; sizes and times are those of the fullest chip"]
    if grid.n_chips == 1:
        return lines
    link = f"{d.link.name}: {d.link.sent_bytes_per_s / 1e9:g} GB/s and {d.link.hop_s * 1e6:g} us"
    if d.machine is not None and d.between is not None and _reach(grid) > d.machine:
        link += (
            f" a hop inside a machine of {d.machine}; {d.between.name} between machines:"
            f" {d.between.sent_bytes_per_s / 1e9:g} GB/s a chip and {d.between.hop_s * 1e6:g} us"
        )
    lines.append(
        f"messages over {link} a hop, one after the other and after the work; a library's own time"
        " for a call is not counted"
    )
    if grid.ep > 1:
        even = "an even share" if d.w.skew == 1 else f"{d.w.skew:g} times an even share"
        lines.append(f"the busiest chips' experts get {even} of the visits (--skew)")
        if d.w.dispatch != "bf16":
            lines.append(
                f"tokens travel to experts in {d.w.dispatch}, and back in bf16 (--dispatch)"
            )
    return lines


def kept(arch: Architecture) -> str:
    """How chips that share every layer keep its caches."""
    return " and ".join(says for says, own in KEPT.items() if own & set(arch.layer_kinds))


def _ways(d: ShardedDeployment, grid: Grid) -> list[str]:
    """Each way of sharing in words."""
    ways = []
    if grid.pp > 1:
        ways.append(f"{grid.pp} stages of layers, as many micro-batches")
    if grid.dp > 1:
        ways.append(f"{grid.dp} copies{' in each' * (grid.pp > 1)}, sequences dealt out to them")
    if grid.tp > 1:
        ways.append(f"heads, columns and vocabulary of a copy over {grid.tp}, {kept(d.arch)}")
    if grid.ep > 1:
        shared = f", shared by {grid.sharing} copies" if grid.sharing > 1 else ""
        ways.append(f"whole experts dealt out to {grid.ep}{shared}")
    elif d.arch.moe is not None and grid.dp > 1:
        ways.append("all experts in every copy")
    return ways or ["the whole model"]


def minded(d: ShardedDeployment, grid: Grid) -> list[str]:
    """What this grid makes of this model and this batch."""
    w, lines = d.w, []
    for line in uneven_cuts(d.arch, grid.tp, "heads"):
        lines.append(
            line.split("; --split-cache")[0] + "; --dp copies need none" * ("latent" in line)
        )
    if d.arch.moe is not None and d.arch.moe.E % grid.ep:
        lines.append(
            f"{d.arch.moe.E} experts do not divide evenly over {grid.ep}: the others wait for the"
            " fullest"
        )
    if w.batch % d.sequences_at_once:
        lines.append(
            f"{w.batch:,} sequences are no multiple of {d.sequences_at_once:,}: some chips wait for"
            " others"
        )
    if d.machine is not None and grid.tp > d.machine:
        lines.append(
            f"a copy over {grid.tp:,} chips sums between machines in every layer: --pp or --dp send"
            " less often"
        )
    return lines


def _reach(grid: Grid) -> int:
    """Neighboring chips among which messages go."""
    return grid.n_chips if grid.pp > 1 else max(grid.tp, grid.ep)
