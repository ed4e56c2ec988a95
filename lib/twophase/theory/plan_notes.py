"""What a plan takes for granted, and what a person should look at twice, in sentences."""

from twophase.theory import catalog, engine_memory, grid_notes
from twophase.theory.architecture import Architecture
from twophase.theory.deployment import Deployment
from twophase.theory.drafted import DraftedDeployment
from twophase.theory.expected import fitted, in_several_machines, kind, overheads
from twophase.theory.layout import uneven_cuts
from twophase.theory.quantization import BLOCK_FORMATS
from twophase.theory.sharded_deployment import ShardedDeployment
from twophase.theory.weight_format import NORMAL_FLOATS
from twophase.theory.workload import Workload

LITTLE_LEFT = 0.05
MEASURED_CHIPS = ("H100 SXM", "H200 SXM", "B200")  # of the runs: a test compares
MEASURED_FORMATS = ("fp8", "fp4")
UNMEASURED_LAYERS = {
    "sliding": "windows",
    "chosen": "chosen keys",
    "compressed": "summaries of keys",
    "state": "states",
    "none": "layers without attention",
}
MOST_MEASURED_CHIPS = 64
MOST_MEASURED = {"sequences in flight": 512, "prompt tokens": 8192}
LAYOUTS = {
    "tensor": "heads, MLP columns and vocabulary divided, norms on every chip, caches by KV head",
    "batch-split": "heads, MLP columns and vocabulary divided evenly, caches by sequence",
    "length-split": "heads, MLP columns and vocabulary divided evenly, caches by position",
    "sequence": "weights and caches whole on every chip, a prompt's positions divided; in decode"
    " every chip does the same",
    "stationary": "every matrix divided both ways and evenly, caches by sequence and head",
    "pipeline": "layers divided, as many micro-batches in flight as chips, or as sequences",
    "experts": "whole experts divided, all other weights on every chip, sequences dealt out with"
    " their caches",
    "replicas": "the whole model on every chip, sequences dealt out",
    "gathered": "weights in pieces, each layer's gathered before use (FSDP), sequences dealt out",
}


def assumptions(d: Deployment, *, runs: bool = True) -> tuple[str, ...]:
    """What the numbers of a plan rest on; of one that does not fit, and so never runs, those of its
    memory alone."""
    arch, w = d.arch, d.w
    positions = f"{w.context:,} positions in every sequence"
    usable = f"an engine uses {w.usable_fraction:g} of a chip's memory (--usable)"
    if not runs:
        about = (_formats(w), usable, f"memory is for {positions}")
        return (*about, *(_layout(d) or _chips(arch, w, "sizes are")), *_drafts(d), *_reserve(d))
    return (
        f"{_formats(w)}; products in {w.compute}",
        usable,
        f"peak rates of the catalog; a step reads all weights it needs once and {_caches(arch)}; of"
        " an untied embedding it reads one row a token",
        f"memory and the step are for {positions}; TTFT is for one"
        f" prompt of {w.prompt:,} tokens on an idle machine",
        *_experts(arch),
        *(_layout(d) or _chips(arch, w, "communication not counted; sizes and times are")),
        *_drafts(d),
        *_found(w),
        *_requests(w),
        *_expected(d),
        *(["MLA decodes in its absorbed form, from the latents"] if arch.mla else []),
        *_reserve(d),
    )


def _formats(w: Workload) -> str:
    line = f"weights in {w.weights}, cache in {w.kv}"
    if w.kept != w.weights:
        line += f"; embedding, head, norms and router in {w.kept} (--embeddings)"
    if w.attention is not None:
        line += f"; attention in {w.attention} (--attention)"
    if w.scale_group:
        zero = f" and a {w.zero_bits}-bit zero point" * (w.zero_bits > 0)
        line += f"; a 16-bit scale{zero} for {w.scale_group:,} weights counted"
    if w.weights == "fp4":
        line += "; an 8-bit scale for 32 weights counted"
    if w.weights in (*BLOCK_FORMATS, *NORMAL_FLOATS):
        line += f"; scales counted, {8 * float(w.bytes_per_weight()):g} bits a weight in all"
    return line


def _caches(arch: Architecture) -> str:
    """What a step reads of the caches."""
    if arch.chooses:
        return "of every sequence's cache what keys are chosen by and the chosen ones"
    return "every sequence's whole cache"


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
    evenly = "the cache by position or sequence, evenly"
    cache = grid_notes.kept(arch) if w.split_cache == "heads" else evenly
    latents = ", MLA's projections into latents" if arch.mla else ""
    routers = " and routers" if arch.moe else ""
    return [
        f"tensor parallel over {w.n_chips:,} chips: heads, MLP columns and vocabulary divided,"
        f" norms{latents}{routers} on every chip; {cache}; {fullest} those of the fullest chip"
    ]


def _model(d: Deployment) -> Deployment:
    """Without the draft."""
    return d.target if isinstance(d, DraftedDeployment) else d


def _layout(d: Deployment) -> list[str]:
    """How the chips share the model, and what carries their messages."""
    d, w = _model(d), d.w
    if not isinstance(d, ShardedDeployment):
        return []
    if w.grid is not None:
        return grid_notes.assumed(d, w.grid)
    sides = d.link.mesh(w.n_chips)
    mesh = "" if len(sides) == 1 else f", {' x '.join(map(str, sides))}"
    return [
        f"layout {w.layout} over {w.n_chips:,} chips: {LAYOUTS[str(w.layout)]}; sizes and times are"
        " those of the fullest chip",
        f"messages over {d.link.name}{mesh}: {d.link.sent_bytes_per_s / 1e9:g} GB/s and"
        f" {d.link.hop_s * 1e6:g} us a hop, one after the other and after the work; a library's"
        " own time for a call is not counted",
    ]


def _drafts(d: Deployment) -> list[str]:
    """What a round is."""
    if not isinstance(d, DraftedDeployment):
        return []
    return [
        f"{d.draft.arch.name} drafts {d.n_drafted} token{'s' * (d.n_drafted > 1)} a round on the"
        " same chips, in the same formats, as many steps of it; each is kept with chance"
        f" {d.w.acceptance:g}, given those before it (--acceptance): {d.tokens_per_step:.3g} tokens"
        " a round, in which the model checks all in one pass; a step here is a round",
    ]


def _found(w: Workload) -> list[str]:
    """What prefixes that are found save."""
    if not w.found:
        return []
    return [
        f"{w.found:,} of a prompt's {w.prompt:,} tokens are found in the cache: computed for"
        " nobody, read by all others' attention; memory counts every sequence's cache whole, as if"
        " none were shared"
    ]


def _requests(w: Workload) -> list[str]:
    if w.n_output is None:
        return ["no --output, so no requests: throughput is that of decoding, prompts not counted"]
    return [
        f"steady state: {w.batch:,} requests always in flight, each with a prompt and"
        f" {w.n_output - 1:,} steps that it shares, their context {float(w.mean_context):,.0f} on"
        " average; latency = in flight / rate, waiting for the prompts of the others included"
    ]


def _expected(d: Deployment) -> list[str]:
    """What the expected column rests on, and where it is known to fail."""
    found, own, o = fitted(), kind(d), overheads(d)
    misses = [found.held_out[left_out][own] for left_out in ("model", "engine", "chip")]
    rest = "" if own == "dense" else ", experts" + ", several machines" * in_several_machines(d)
    if (d.arch.mla or d.arch.compressed) and d.w.n_chips > 1 and d.w.split_cache == "evenly":
        rest += "; latents read whole by every chip of a machine, as tensor parallel engines do"
    added = (
        f"expected: the floor, prompts {o.of_prompt(d):.1f} times as long as at the peak rates, and"
        f" {o.of_layer_s(d) * 1e6:.0f} us a layer and step + {o.layer_s_per_sequence * 1e6:.2f} us"
        f" a sequence (launches, messages{rest}): "
    )
    if d.chip.overheads is not None:
        return [added + f"from the card of the {d.chip.name}, with the spread of runs on GPUs"]
    return [
        f"{added}fitted to {found.n_runs:,} runs of three engines on H100, H200 and B200, fp8 and"
        " fp4;"
        f" models, engines and chips left out of the fit it missed by {min(misses):.0%} to"
        f" {max(misses):.0%} (median; TTFT {found.held_out['first token'][own]:.0%})"
    ]


def _reserve(d: Deployment) -> list[str]:
    if engine_memory.is_said(d.w):
        return []
    limits, found = engine_memory.limits_of(d), engine_memory.fitted()
    return [
        "what fits is with activations and overhead of 0 (--activations-gb, --overhead-gb,"
        " --overhead)",
        f"what an engine sets aside: as vLLM does with chunks of {limits.chunk:,} tokens and up to"
        f" {limits.sequences:,} sequences; over {found.n_reports} published starts the caches were"
        f" missed by {found.missed_of_cache:.0%} (median, each source left out of the fit)",
    ]


def _waiting(d: Deployment) -> list[str]:
    """What is said of a batch that memory holds, but an engine beside its own buffers does not."""
    room = engine_memory.cache_room(d)
    if not room.expected_sequences < d.w.batch <= d.max_batch(d.w.context):
        return []
    return [
        f"beside the {room.set_aside_bytes / 1e9:.1f} GB that an engine is expected to set aside"
        f" {room.expected_sequences:,} sequences of this context have room, not {d.w.batch:,}"
    ]


def warnings(d: Deployment) -> tuple[str, ...]:
    """What may make the plan worth less than it looks."""
    w, lines = d.w, []
    free = 1 - d.total_bytes(w.batch, w.context) / d.usable_bytes
    if 0 <= free < LITTLE_LEFT:
        lines.append(f"only {float(free):.1%} of the usable memory is left")
    lines += _waiting(d)
    lines += beyond(d)
    if isinstance(d, DraftedDeployment):
        lines += _of_draft(d)
        d = d.target
    if isinstance(d, ShardedDeployment):
        return (*lines, *_of_layout(d))
    return (*lines, *uneven_cuts(d.arch, w.n_chips, w.split_cache))


def _of_draft(d: DraftedDeployment) -> list[str]:
    lines: list[str] = []
    arch, draft = d.arch, d.draft.arch
    if arch.V != draft.V:
        lines.append(
            f"{draft.name} knows {draft.V:,} tokens, {arch.name} {arch.V:,}: a draft must speak of"
            " the same"
        )
    gain = d.speedup()
    if gain <= 1:
        lines.append(f"drafting makes tokens slower: {gain:.2f} times the rate of the model alone")
    return lines


def beyond(d: Deployment) -> list[str]:
    """What is asked beyond what the model is made for, and beyond what was measured."""
    most, lines = d.arch.max_context, []
    if most is not None and d.w.context > most:
        lines.append(f"the model is made for at most {most:,} positions")
    return lines + _beyond_the_runs(d)


def _beyond_the_runs(d: Deployment) -> list[str]:
    """Where no run says whether what is expected comes true."""
    if d.w.batch > d.max_batch(d.w.context) or d.chip.overheads is not None:
        return []
    other = [f"chips like the {d.chip.name}"] if d.chip.name not in MEASURED_CHIPS else []
    kinds = set(d.arch.layer_kinds)
    other += [says for name, says in UNMEASURED_LAYERS.items() if name in kinds]
    if isinstance(d, DraftedDeployment):
        other.append("a draft")
    if d.w.grid is not None and d.w.grid.pp > 1:
        other.append("a pipeline of stages")
    if d.w.layout not in (None, "tensor") and d.w.n_chips > 1:
        other.append(f"the layout {d.w.layout}")
    if d.w.compute not in MEASURED_FORMATS:
        other.append(f"products in {d.w.compute}")
    if d.w.n_chips > MOST_MEASURED_CHIPS:
        other.append(f"{d.w.n_chips:,} chips")
    for (name, most), asked in zip(MOST_MEASURED.items(), (d.w.batch, d.w.prompt), strict=True):
        if asked > most:
            other.append(f"{asked:,} {name}")
    if not other:
        return []
    return [f"no run that the expected times are fitted to had {' or '.join(other)}"]


def _of_layout(d: ShardedDeployment) -> list[str]:
    """What a layout makes of this model, this batch and this link."""
    w = d.w
    if w.grid is not None:
        return grid_notes.minded(d, w.grid)
    lines = []
    if w.layout == "tensor":
        for line in uneven_cuts(d.arch, w.n_chips, "heads"):
            lines.append(line.split("; --split-cache")[0])
    each = d.sequences_at_once
    if w.batch % each:
        lines.append(
            f"{w.batch:,} sequences are no multiple of {each:,}: some chips wait for others"
        )
    most = d.link.usual_chips
    if catalog.usual_chips(d.chip) and d.link == catalog.usual_link(d.chip):
        most = catalog.usual_chips(d.chip)
    if most is not None and w.n_chips > most:
        lines.append(
            f"{d.link.name} usually joins {most} chips of one machine, not {w.n_chips:,}; between"
            " machines there is --link infiniband or ethernet"
        )
    return lines
