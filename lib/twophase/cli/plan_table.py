"""A plan as a table for people."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twophase.theory.plan import Memory, Plan, Service, Step
from twophase.theory.remedies import Change

BINDS = {
    "memory": "memory: it does not fit",
    "bandwidth": "memory bandwidth: a step reads for longer than it computes",
    "compute": "compute: a step computes for longer than it reads",
    "links": "links: a step sends for longer than it reads or computes",
}
Row = tuple[str, str, str]


def show(result: Plan, console: Console) -> None:
    """Print a plan as a table, its warnings and its assumptions."""
    w = result.workload
    chips = f"{w.n_chips:,} x {result.hardware}" if w.n_chips > 1 else result.hardware
    console.print(
        f"[bold]{escape(result.model)}[/bold] on [bold]{chips}[/bold], batch {w.batch:,}, context"
        f" {w.context:,}" + (f", layout {w.layout}" if w.layout else "")
    )
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    sections = [_memory_rows(result, result.memory)]
    if result.step is not None and result.service is not None:
        sections += [_step_rows(result.step), _service_rows(result, result.service)]
    for section in sections:
        for row in section:
            table.add_row(*row)
        table.add_section()
        table.add_row()
    console.print(table)
    notes = Table.grid(padding=(0, 2))
    notes.add_row("[bold]A step is bound by[/bold]", BINDS[result.binds] + ".")
    for number, change in enumerate(result.would_fit):
        notes.add_row("" if number else "[bold]Would fit[/bold]", would_fit(change) + ".")
    for line in result.warnings:
        notes.add_row("[yellow]Mind[/yellow]", line + ".")
    for number, line in enumerate(result.assumptions):
        notes.add_row("" if number else "[dim]Assumed[/dim]", line + ".")
    console.print(notes)


def would_fit(change: Change) -> str:
    """A change of the workload in words: 4 chips, weights in int8."""
    words = {
        "batch": "batch {:,}",
        "context": "context {:,}",
        "n_chips": "{:,} chips",
        "weights": "weights in {}",
        "kv": "cache in {}",
        "split_cache": "--split-cache {}",
    }
    return ", ".join(words[name].format(value) for name, value in change.items())


def _memory_rows(p: Plan, m: Memory) -> list[Row]:
    active = (
        "" if p.n_active_params == p.n_params else f", {p.n_active_params / 1e9:.2f} billion active"
    )
    longest = "no limit: every window is full" if m.max_context is None else f"{m.max_context:,}"
    each = " a chip" if p.workload.n_chips > 1 else ""
    needed, why = "no number", "what every chip keeps a copy of is too much for one"
    if m.chips_needed is not None:
        needed, why = f"{m.chips_needed:,}", "at this batch and context"
    return [
        (
            f"Weights{each}",
            gigabytes(m.weight_bytes),
            f"{p.n_params / 1e9:.2f} billion parameters{active}",
        ),
        (
            f"KV cache{each}",
            gigabytes(m.cache_bytes),
            f"{gigabytes(m.cache_bytes_per_sequence)} per sequence",
        ),
        (f"Activations{each}", gigabytes(m.activation_bytes), ""),
        (f"Overhead{each}", gigabytes(m.overhead_bytes), ""),
        (
            f"Memory{each}",
            gigabytes(m.total_bytes),
            f"{'fits' if m.fits else 'does not fit'} the {gigabytes(m.usable_bytes)} usable of"
            f" {gigabytes(m.capacity_bytes)}",
        ),
        ("Largest batch that fits", f"{m.max_batch:,}", "at this context"),
        ("Longest context that fits", longest, "at this batch"),
        ("Chips needed", needed, why),
    ]


def _step_rows(p: Step) -> list[Row]:
    sent: list[Row] = []
    both = "perfect overlap", "no overlap"
    if p.step_send_s is not None and p.step_sent_bytes is not None:
        sent = [
            (
                "Step, links",
                duration(p.step_send_s),
                f"{gigabytes(p.step_sent_bytes)} sent by a chip",
            )
        ]
        both = "reads and computes at once, then sends", "reads, computes, sends"
    return [
        (
            "Critical batch",
            _batch(p.critical_batch),
            "at this context every batch reads for longer than it computes"
            if p.critical_batch is None
            else "the step at this context computes for longer than it reads from here on",
        ),
        (
            "Critical batch, weights",
            _batch(p.critical_batch_weights),
            "the same without any cache, as for the shortest contexts",
        ),
        ("Step-time floor", duration(p.step_time_floor_s), "the weights of one token read once"),
        ("Step, memory", duration(p.step_memory_s), f"{gigabytes(p.step_bytes)} read on a chip"),
        ("Step, compute", duration(p.step_compute_s), f"{p.step_flops / 1e12:.3g} TFLOP on a chip"),
        *sent,
        ("Step time, max", duration(p.step_time_s), both[0]),
        ("Step time, sum", duration(p.step_time_sum_s), both[1]),
    ]


def _batch(critical: int | None) -> str:
    return "none" if critical is None else f"{critical:,}"


def _service_rows(p: Plan, s: Service) -> list[Row]:
    rows = [
        ("TTFT", duration(s.ttft_s), "one prompt on an idle machine"),
        (
            "Decoding",
            tokens(s.decode_tokens_per_s),
            "all sequences, mean context, no prompts computed",
        ),
    ]
    if s.requests_per_s is None or s.tokens_per_s is None or s.request_latency_s is None:
        return [
            *rows,
            (
                "Decoding, ceiling",
                tokens(s.decode_ceiling_tokens_per_s),
                "any batch, if memory held it",
            ),
        ]
    if s.tpot_s is not None:
        rows.append(("TPOT", duration(s.tpot_s), "in the steady state, prompts in between"))
    rows += [
        (
            "Latency of a request",
            duration(s.request_latency_s),
            f"with {p.workload.batch:,} in flight",
        ),
        (
            "Requests",
            f"{s.requests_per_s:.4g} requests/s",
            f"{s.requests_per_s_sum:.4g} without overlap; {s.prefill_share:.0%} of the time goes to"
            " prompts",
        ),
        ("Throughput", tokens(s.tokens_per_s), f"{tokens(s.tokens_per_s_sum)} without overlap"),
        (
            "Throughput ceiling",
            tokens(s.ceiling_tokens_per_s),
            "no engine can do more on chips cut like this, whatever the batch"
            if p.workload.n_chips > 1
            else "no engine can do more, whatever the batch",
        ),
        ("Chip-hours per million tokens", f"{s.chip_hours_per_million_tokens:.4g}", "of output"),
    ]
    if s.cost_per_million_tokens is not None:
        cost = f"{s.cost_per_million_tokens:.4g}"
        rows.append(("Cost per million tokens", cost, "of output, in the price's currency"))
    return rows


def tokens(per_s: float | None) -> str:
    """A throughput."""
    if per_s is None:
        return ""
    return f"{per_s:,.1f} tokens/s" if per_s >= 10 else f"{per_s:.3g} tokens/s"


def gigabytes(n_bytes: float) -> str:
    """Bytes as GB (10^9), or MB where that reads better."""
    return (
        f"{n_bytes / 1e9:,.2f} GB" if n_bytes >= 1e8 or n_bytes == 0 else f"{n_bytes / 1e6:,.3g} MB"
    )


def duration(seconds: float) -> str:
    """Seconds as s, ms or us."""
    for size, unit in ((1, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-6:.4g} us"
