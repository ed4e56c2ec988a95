"""Choices of `twophase size` as a table, a report, plain data and a picture."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twophase.cli.quantities import duration
from twophase.theory.expected import fitted
from twophase.theory.sizing import Choice, Demand, Found

LACKS = {
    "memory": "do not fit",
    "TPOT": "take too long a token",
    "TTFT": "take too long to the first token",
}
ALTERNATIVES = 2  # that are said beside the first; the table has all


def as_dict(found: Found) -> dict[str, Any]:
    """Plain data for JSON, with a schema number."""
    plain = [
        {"all_chips": one.all_chips, "layout": one.layout} | asdict(one) for one in found.choices
    ]
    refused = {name: dict(counted) for name, counted in found.refused.items()}
    return {"schema": 2, "choices": plain, "refused": refused}


def show(name: str, demand: Demand, found: Found, console: Console) -> None:
    """Print the question, the choices, why the first was chosen, and what all of it rests on."""
    console.print(f"[bold]{escape(name)}[/bold], {_asked(demand)}")
    if not found.choices:
        for line in _nothing(found):
            console.print(line)
        return
    heads, *rows = _rows(found.choices, demand)
    table = Table(box=None, pad_edge=False)
    for heading in heads:
        left = heading in ("", "chips", "copies")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for title, line in _reasons(found):
        console.print(f"[bold]{title}[/bold]  {escape(line)}.")
    for line in _minds(found.choices):
        console.print(f"[yellow]Mind[/yellow]  {escape(line)}.")
    console.print(" ".join(f"{line}." for line in _assumed(demand)), style="dim")


def markdown(name: str, demand: Demand, found: Found) -> str:
    """The same as a report in Markdown."""
    asked = _asked(demand)
    lines = [f"# {name}: which chips", "", f"{asked[0].upper()}{asked[1:]}.", ""]
    if not found.choices:
        return "\n".join([*lines, *_nothing(found)])
    heads, *rows = _rows(found.choices, demand)
    marks = ["---", "---", "---", *["--:"] * (len(heads) - 3)]
    for row in (heads, marks, *rows):
        lines.append(f"| {' | '.join(cell.replace('*', chr(92) + '*') for cell in row)} |")
    parts = {
        "Why": [f"{title}: {line}" for title, line in _reasons(found)],
        "Mind": _minds(found.choices),
        "Assumed": list(_assumed(demand)),
    }
    for title, sentences in parts.items():
        lines += ["", f"## {title}", "", *(f"- {line}." for line in sentences)] * bool(sentences)
    return "\n".join(lines)


def shown(found: list[Choice]) -> list[Choice]:
    """Of each kind and number of chips the best choice, and every one that no other beats."""
    first: dict[tuple[str, int], Choice] = {}
    for one in found:
        first.setdefault((one.hardware, one.n_chips), one)
    return [one for one in found if one.best or first[one.hardware, one.n_chips] is one]


def _asked(demand: Demand) -> str:
    """The question in a line."""
    line = (
        f"{demand.requests_per_s:g} requests/s of {demand.n_prompt:,} + {demand.n_output:,} tokens"
    )
    limits = (("TTFT", demand.ttft_s, demand.ttft_p), ("TPOT", demand.tpot_s, demand.tpot_p))
    for what, limit, p in limits:
        if limit is not None:
            line += f", {what}" + (f" p{p:g}" if p is not None else "") + f" {duration(limit)}"
    return line


def _rows(found: list[Choice], demand: Demand) -> Iterator[list[str]]:
    """Headings, then a row for each choice that is shown: times that are expected, and beside TPOT
    the one that is held against its limit (neither for answers of one token); TTFT so where it is
    asked for at a percentile."""
    priced = any(one.price_per_hour is not None for one in found)
    token, first = demand.tpot_p, demand.ttft_p
    held = "9 of 10" if token is None else f"p{token:g}"
    late = "TTFT" if first is None else f"TTFT p{first:g}"
    tokens = ["TPOT", held] if demand.n_output > 1 else []
    heads = ["", "chips", "copies", "batch", *tokens, late]
    yield heads + ["an hour", "1M tokens"] * priced
    for one in shown(found):
        e = one.expected
        to_first = e.expected_ttft_s if first is None else one.ttft_limit_s
        times = [to_first]
        if one.tpot_limit_s is not None:
            times = [e.expected_tpot_s, one.tpot_limit_s, to_first]
        amounts = (one.price_per_hour, one.cost_per_million_tokens) if priced else ()
        yield [
            "*" if one.best else "",
            f"{one.all_chips:,} {one.hardware}",
            f"{one.n_replicas:,} x {compact(one)}",
            f"{one.batch:,}",
            *map(_short, times),
            *("" if amount is None else f"{amount:,.4g}" for amount in amounts),
        ]


def compact(one: Choice) -> str:
    """Its layout without spaces inside: tp2 dp4 ep8."""
    return one.layout.replace("p ", "p")


def _reasons(found: Found) -> Iterator[tuple[str, str]]:
    """Why the first was chosen, what the next best ones have that it has not, what was refused:
    each with its title."""
    first, *others = found.choices
    cost = "cheapest" if first.price_per_hour is not None else "choice of fewest chips"
    line = f"{_named(first)} is the {cost}"
    next_ones = [one for one in others if one.hardware == first.hardware]
    if next_ones:
        after = next_ones[0]
        line += f"; next on {first.hardware} is {compact(after)}, {_cost(after)} and"
        line += f" {_waited(after)}"
    yield "Chosen", line
    comparable = [one for one in others if one.best and (one.price_per_hour or one in next_ones)]
    for one in comparable[:ALTERNATIVES]:
        yield (
            "Or",
            f"{_named(one)}: {_waited(one)} instead of {_short(first.waited_s)}, at {_cost(one)}",
        )
    for name, counted in found.refused.items():
        if counted:
            tried = counted.total() + sum(one.hardware == name for one in found.choices)
            yield "Tried", f"of {tried} layouts on {name} {_lacking(counted)}"


def _waited(one: Choice) -> str:
    what = "a token" if one.tpot_limit_s is not None else "to the token"
    return f"{_short(one.waited_s)} {what}"


def _named(one: Choice) -> str:
    return f"{one.n_replicas:,} x {compact(one)} on {one.all_chips:,} {one.hardware}"


def _cost(one: Choice) -> str:
    if one.price_per_hour is not None:
        return f"{one.price_per_hour:,.4g} an hour"
    return f"{one.all_chips:,} chips"


def _lacking(counted: Counter[str]) -> str:
    return ", ".join(f"{counted[lack]} {says}" for lack, says in LACKS.items() if counted[lack])


def _nothing(found: Found) -> Iterator[str]:
    yield (
        "Nothing keeps this promise: ask for more time, narrower formats (--weights, --kv) or"
        " other chips (--hardware)."
    )
    for name, counted in found.refused.items():
        if counted:
            yield f"Of {counted.total()} layouts on {name} {_lacking(counted)}."


def _minds(found: list[Choice]) -> list[str]:
    return list(dict.fromkeys(line for one in shown(found) for line in one.minds))


def _assumed(demand: Demand) -> Iterator[str]:
    misses = fitted().held_out["first token"]
    yield (
        "* no other choice is better in both price (without prices: chips of its kind) and time"
        f" {'per token' if demand.n_output > 1 else 'to the token'}"
    )
    yield (
        "Times are what to expect; limits are held at what nine of ten measured runs kept, whose"
        " layouts are not known"
    )
    if demand.tpot_p is not None or demand.ttft_p is not None:
        yield (
            "Percentiles: requests come at random (Poisson), all equally long; as many are in"
            " flight as Poisson's law says; a prompt waits for those before it in its copy's queue"
            " (M/G/1, an exponential tail); neither is taken below what is expected without"
        )
    yield (
        f"Machines are used for {demand.used:.0%} of what they are expected to do (--used); TTFT is"
        f" rough: missed by {misses['dense']:.0%} in the median (experts {misses['experts']:.0%});"
        " experts are visited evenly"
    )
    yield (
        "tp chips share each layer, dp copies of attention share experts dealt out to ep groups, pp"
        " stages share the layers; twophase plan with --tp, --dp, --ep and --pp says what each"
        " number rests on"
    )


def _short(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def draw(found: list[Choice], path: Path) -> None:
    """Price, or chips, over time per token: a mark for each kind of chip, its best ones with layout
    and batch. OSError or ValueError if the file cannot be written."""
    from twophase.measure.plots import COLORS, MARKERS, figure

    fig, ax = figure(figsize=(6.4, 4))
    priced = all(one.price_per_hour is not None for one in found)
    kinds = list(dict.fromkeys(one.hardware for one in found))
    for kind, color, marker in zip(kinds, COLORS, MARKERS, strict=False):
        own = [one for one in found if one.hardware == kind]
        x = [one.waited_s * 1e3 for one in own]
        y = [float(one.price_per_hour or 0) if priced else float(one.all_chips) for one in own]
        ax.scatter(x, y, color=color, marker=marker, label=kind)
        for one, a, b in zip(own, x, y, strict=True):
            if one.best:
                label = f"  {one.n_replicas} x {compact(one)}, batch {one.batch}"
                ax.annotate(label, (a, b), fontsize=8)
    ax.set_yscale("log")
    ax.margins(x=0.2)
    per_token = any(one.tpot_limit_s is not None for one in found)
    ax.set_xlabel(f"expected time {'per' if per_token else 'to the'} token [ms]")
    ax.set_ylabel("price [an hour]" if priced else "chips")
    ax.legend()
    fig.savefig(path)
