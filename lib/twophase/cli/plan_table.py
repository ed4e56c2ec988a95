"""A plan as a table for people."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twophase.cli.quantities import duration, gigabytes, tokens
from twophase.theory.expected import Expected
from twophase.theory.latency_throughput import chip_hours_per_million_tokens
from twophase.theory.plan import Plan
from twophase.theory.plan_parts import Memory, Service, Step
from twophase.theory.remedies import Change

BINDS = {
    "memory": "memory: it does not fit",
    "bandwidth": "memory bandwidth: a step reads for longer than it computes",
    "compute": "compute: a step computes for longer than it reads",
    "links": "links: a step sends for longer than it reads or computes",
}
Row = tuple[str, str, str]
Wide = tuple[str, str, str, str]


def show(result: Plan, console: Console) -> None:
    """Print a plan as a table, its warnings and its assumptions."""
    w = result.workload
    chips = f"{w.n_chips:,} x {result.hardware}" if w.n_chips > 1 else result.hardware
    console.print(
        f"[bold]{escape(result.model)}[/bold] on [bold]{chips}[/bold], {escape(_asked(result))}"
    )
    sections = [_memory_rows(result, result.memory)]
    if result.step is not None:
        sections.append(_step_rows(result.step))
    console.print(_table(sections))
    if result.service is not None and result.expected is not None:
        times = ("", "[dim]floor[/dim]", "[dim]expected[/dim]", "eight of ten runs")
        rates = ("", "[dim]ceiling[/dim]", "[dim]expected[/dim]", "")
        e = result.expected
        console.print(
            _table(
                [[times, *_times_rows(result, e)], [rates, *_rates_rows(result, result.service, e)]]
            )
        )
    notes = Table.grid(padding=(0, 2))
    notes.add_row("[bold]A step is bound by[/bold]", BINDS[result.binds] + ".")
    for number, change in enumerate(result.would_fit):
        notes.add_row("" if number else "[bold]Would fit[/bold]", would_fit(change) + ".")
    for line in result.warnings:
        notes.add_row("[yellow]Mind[/yellow]", line + ".")
    for number, line in enumerate(result.assumptions):
        notes.add_row("" if number else "[dim]Assumed[/dim]", line + ".")
    console.print(notes)


def markdown(result: Plan, picture: tuple[str, str] | None = None) -> str:
    """The same as a report in Markdown: tables, what to mind, what was assumed; and a picture, if
    there is one: what it shows, and the file beside the report."""
    w = result.workload
    chips = f"{w.n_chips:,} x {result.hardware}" if w.n_chips > 1 else result.hardware
    asked = _asked(result)
    lines = [f"# {result.model} on {chips}", "", f"{asked[0].upper()}{asked[1:]}.", ""]
    if picture is not None:
        shows, file = picture
        lines += [f"![{shows}](<{file}>)", ""]
    lines += _markdown_table(("Memory", "", ""), _memory_rows(result, result.memory))
    if result.step is not None:
        lines += _markdown_table(("A decode step", "", ""), _step_rows(result.step))
    if result.service is not None and result.expected is not None:
        times = ("Times", "floor", "expected", "eight of ten runs")
        rates = ("Rates", "ceiling", "expected", "")
        lines += _markdown_table(times, _times_rows(result, result.expected))
        lines += _markdown_table(rates, _rates_rows(result, result.service, result.expected))
    lines += [f"A step is bound by {BINDS[result.binds]}.", ""]
    for title, sentences in (
        ("Would fit", map(would_fit, result.would_fit)),
        ("Mind", result.warnings),
        ("Assumed", result.assumptions),
    ):
        items = [f"- {line}" for line in sentences]
        lines += [f"## {title}", "", *items, ""] if items else []
    return "\n".join(lines)


def _asked(result: Plan) -> str:
    """Batch, context, layout, draft and found prefixes in a line."""
    w = result.workload
    line = f"batch {w.batch:,}, context {w.context:,}"
    shared = w.layout or (w.grid and str(w.grid))
    line += f", layout {shared}" if shared else ""
    line += f", draft {result.draft}" if result.draft else ""
    return line + (f", {w.found:,} tokens of a prompt found" if w.found else "")


def _markdown_table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    marks = ["---", *["--:"] * (len(heads) - 2), "---"]
    cells = (tuple(cell.replace("|", "\\|") for cell in row) for row in (heads, marks, *rows))
    return [*(f"| {' | '.join(row)} |" for row in cells), ""]


def _table(sections: Sequence[Sequence[tuple[str, ...]]]) -> Table:
    """Rows of a name, one or two quantities and a note, with a line free after each section."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    for _ in sections[0][0][1:-1]:
        table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for section in sections:
        for row in section:
            table.add_row(*row)
        table.add_row()
    return table


def would_fit(change: Change) -> str:
    """A change of the workload in words: 4 chips, weights in int8."""
    words = {
        "batch": "batch {:,}",
        "context": "context {:,}",
        "n_chips": "{:,} chips",
        "grid": "as {}",
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
    if m.expected_chips_needed is not None and m.expected_chips_needed != m.chips_needed:
        why += f"; {m.expected_chips_needed:,} beside what an engine sets aside"
    drafted = [] if m.draft_bytes is None else [("Of them the draft's", gigabytes(m.draft_bytes))]
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
        *((name, size, "weights and caches") for name, size in drafted),
        (f"Activations{each}", gigabytes(m.activation_bytes), ""),
        (f"Overhead{each}", gigabytes(m.overhead_bytes), ""),
        (
            f"Memory{each}",
            gigabytes(m.total_bytes),
            f"{'fits' if m.fits else 'does not fit'} the {gigabytes(m.usable_bytes)} usable of"
            f" {gigabytes(m.capacity_bytes)}",
        ),
        (
            "Largest batch that fits",
            f"{m.max_batch:,}",
            f"at this context; {m.expected_max_batch:,} beside what an engine sets aside",
        ),
        ("Longest context that fits", longest, "at this batch"),
        ("Chips needed", needed, why),
        ("Cache, at most", f"{m.cache_tokens_ceiling:,} tokens", "if only weights lay beside it"),
        (
            f"An engine sets aside{each}",
            gigabytes(m.engine_bytes),
            "expected, before it has caches",
        ),
        ("Cache of an engine", f"{m.expected_cache_tokens:,} tokens", "expected"),
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
    drafted: list[Row] = []
    if p.speedup is not None:
        gain = f"{p.speedup:.2f} x the tokens a second of the model alone, at the floor"
        drafted = [("Tokens of a step", f"{p.tokens_per_step:.3g}", gain)]
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
        *drafted,
    ]


def _batch(critical: int | None) -> str:
    return "none" if critical is None else f"{critical:,}"


def _times_rows(p: Plan, e: Expected) -> list[Wide]:
    """What one request sees: floors, and what to expect."""
    rows = [
        (
            "TTFT",
            duration(e.ttft_floor_s),
            duration(e.expected_ttft_s),
            _between(e.expected_ttft_range_s),
        ),
    ]
    if p.workload.n_output != 1:
        floor, expected = duration(e.tpot_floor_s), duration(e.expected_tpot_s)
        rows.append(("TPOT", floor, expected, _between(e.expected_tpot_range_s)))
    if e.latency_floor_s is not None and e.expected_latency_s is not None:
        floor, expected = duration(e.latency_floor_s), duration(e.expected_latency_s)
        rows.append(
            ("Latency of a request", floor, expected, f"with {p.workload.batch:,} in flight")
        )
    return rows


def _between(seconds: tuple[float, float]) -> str:
    low, high = map(duration, seconds)
    return f"{low} to {high}"


def _rates_rows(p: Plan, s: Service, e: Expected) -> list[Wide]:
    """What the machine gives: ceilings, and what to expect."""
    if e.requests_ceiling_per_s is None or e.tokens_ceiling_per_s is None:
        decoding = tokens(p.workload.batch / e.tpot_floor_s)
        return [
            (
                "Decoding",
                decoding,
                tokens(e.expected_decode_tokens_per_s),
                "all sequences, mean context, no prompts computed",
            ),
            (
                "Decoding, any batch",
                tokens(s.decode_ceiling_tokens_per_s),
                "",
                "if memory held it",
            ),
        ]
    at_most = e.tokens_ceiling_per_s
    hours = chip_hours_per_million_tokens(at_most, p.workload.n_chips)
    rows = [
        (
            "Requests per second",
            f"{e.requests_ceiling_per_s:.4g}",
            f"{e.expected_requests_per_s:.4g}",
            f"{s.prefill_share:.0%} of a machine at its peak goes to prompts",
        ),
        ("Throughput", tokens(at_most), tokens(e.expected_tokens_per_s), "of output"),
        (
            "Throughput, any batch",
            tokens(s.ceiling_tokens_per_s),
            "",
            "on chips cut like this" if p.workload.n_chips > 1 else "if memory held it",
        ),
        (
            "Chip-hours per million tokens",
            f"{hours:.4g}",
            f"{e.expected_chip_hours_per_million_tokens:.4g}",
            "of output; the first at the ceiling",
        ),
    ]
    if e.expected_cost_per_million_tokens is not None and p.workload.price_per_chip_hour:
        cost = f"{p.workload.price_per_chip_hour * hours:.4g}"
        expected = f"{e.expected_cost_per_million_tokens:.4g}"
        rows.append(("Cost per million tokens", cost, expected, "in the price's currency"))
    return rows
