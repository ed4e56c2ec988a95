"""What a plan takes for granted, and what a person should look at twice, in sentences."""

from twophase.theory.architecture import Architecture
from twophase.theory.deployment import Deployment
from twophase.theory.layout import uneven_cuts
from twophase.theory.workload import Workload

LITTLE_LEFT = 0.05


def assumptions(arch: Architecture, w: Workload, *, runs: bool = True) -> tuple[str, ...]:
    """What the numbers of a plan rest on; of one that does not fit, and so never runs, those of its
    memory alone."""
    positions = f"{w.context:,} positions in every sequence"
    usable = f"an engine uses {w.usable_fraction:g} of a chip's memory (--usable)"
    if not runs:
        about = (_formats(w), usable, f"memory is for {positions}")
        return (*about, *_chips(arch, w, "sizes are"), *_reserve(w))
    return (
        f"{_formats(w)}; products in {w.compute}",
        usable,
        "peak rates of the catalog; a step reads all weights it needs once and every sequence's"
        " whole cache; of an untied embedding it reads one row a token",
        f"memory and the step are for {positions}; TTFT is for one"
        f" prompt of {w.prompt:,} tokens on an idle machine",
        *_experts(arch),
        *_chips(arch, w, "communication not counted; sizes and times are"),
        *_requests(w),
        *(["MLA decodes in its absorbed form, from the latents"] if arch.mla else []),
        *_reserve(w),
    )


def _formats(w: Workload) -> str:
    line = f"weights in {w.weights}, cache in {w.kv}"
    if w.kept != w.weights:
        line += f"; embedding, head, norms and router in {w.kept} (--embeddings)"
    if w.weights in ("int4", "int3", "int2"):
        line += "; a 16-bit scale for 128 weights counted"
    if w.weights == "fp4":
        line += "; an 8-bit scale for 32 weights counted"
    return line


def _experts(arch: Architecture) -> list[str]:
    if arch.moe is None:
        return []
    return [
        "a step reads the experts its batch touches: E (1 - (1 - k/E)^B) per layer, routing uniform"
        " and independent"
    ]


def _chips(arch: Architecture, w: Workload, fullest: str) -> list[str]:
    if w.n_chips == 1:
        return []
    cache = "by KV head" if w.split_cache == "heads" else "by position or sequence, evenly"
    latents = ", MLA's projections into latents" if arch.mla else ""
    routers = " and routers" if arch.moe else ""
    return [
        f"tensor parallel over {w.n_chips:,} chips: heads, MLP columns and vocabulary divided,"
        f" norms{latents}{routers} on every chip; the cache {cache}; {fullest} those of the fullest"
        " chip"
    ]


def _requests(w: Workload) -> list[str]:
    if w.n_output is None:
        return ["no --output, so no requests: throughput is that of decoding, prompts not counted"]
    return [
        f"steady state: {w.batch:,} requests always in flight, each computes its prompt alone, then"
        f" shares {w.n_output - 1:,} steps, their context {float(w.mean_context):,.0f} on average;"
        " latency = in flight / rate, waiting for the prompts of the others included"
    ]


def _reserve(w: Workload) -> list[str]:
    if w.activation_bytes or w.overhead_bytes or w.overhead_fraction:
        return []
    return ["activations and overhead are 0: --activations-gb, --overhead-gb, --overhead"]


def warnings(d: Deployment) -> tuple[str, ...]:
    """What may make the plan worth less than it looks."""
    w, lines = d.w, []
    free = 1 - d.total_bytes(w.batch, w.context) / d.usable_bytes
    if 0 <= free < LITTLE_LEFT:
        lines.append(f"only {float(free):.1%} of the usable memory is left")
    if d.arch.max_context is not None and w.context > d.arch.max_context:
        lines.append(f"the model is made for at most {d.arch.max_context:,} positions")
    return (*lines, *uneven_cuts(d.arch, w.n_chips, w.split_cache))
