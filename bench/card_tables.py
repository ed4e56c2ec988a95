"""The tables of README.md on an H100 and an H200, from what the package has recorded of them:
`.venv/bin/python bench/card_tables.py` prints them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from twophase.measure.card_runs import RECORDED_H200, TORCHS, Recorded, recorded_card
from twophase.theory.architecture import Architecture
from twophase.theory.catalog import hardware, model
from twophase.theory.hardware import Hardware
from twophase.theory.kv_cache import kv_bytes_per_token
from twophase.theory.latency_throughput import compute_time_s, memory_step_time_s

SQUARES = (  # the table's name, the format of the data sheet, the run's part and way
    ("bf16, random numbers", "bf16", "calibration", "bf16, random numbers"),
    ("bf16, all ones", "bf16", "calibration", "bf16, all ones"),
    ("tf32", "tf32", "calibration", "tf32, random numbers"),
    ("fp32", "fp32", "calibration", "fp32, random numbers"),
    ("int8", "int8", "formats", "int8, random numbers"),
    ("fp8, quick sums", "fp8", "formats", "fp8, quick sums, random numbers"),
    ("fp8, sums in fp32", "fp8", "formats", "fp8, sums in fp32, random numbers"),
)
ROWS = (1, 16, 64, 128, 256, 288, 512, 1024, 8192)
KERNELS = {
    "as torch chooses": "torch's choice",
    "as we choose": "the library's",
    "flash attention": "flash",
    "cudnn attention": "cuDNN",
    "efficient attention": "efficient",
    "math": "math",
}
WAYS = ("eager", "captured", "fused, captured")
CONTEXTS = (1000, 4000, 16_000, 32_000, 64_000, 128_000)


def tables() -> list[str]:
    """Rates, one matrix, attention by kernel, steps, long contexts, prompts, and what another card
    made of these: each a table in Markdown."""
    card, other, sheet = recorded_card(), recorded_card(RECORDED_H200), hardware("h100")
    return [
        _rates(card, sheet),
        _rows(card),
        _attention(card),
        _steps(card, sheet),
        _contexts(card, sheet),
        _prompts(card, sheet),
        _two_cards(card, other),
        _attention(other),
    ]


def _rates(card: Recorded, sheet: Hardware) -> str:
    read, most = card.hardware().hbm_bytes_per_s, sheet.hbm_bytes_per_s
    lines = [["reads, TB/s", f"{read / 1e12:.2f}", f"{most / 1e12:.2f}", _share(read / most)]]
    for name, kind, part, way in SQUARES:
        rate, most = card.one(part, "square product", way).flops_per_s, sheet.flops_per_s[kind]
        tera = (f"{x / 1e12:,.0f}" for x in (rate, most))
        lines.append([f"{name}, TFLOP/s", *tera, _share(rate / most)])
    return _table(["", "recorded", "data sheet", "share"], lines)


def _rows(card: Recorded) -> str:
    runs = [card.one("rows", "one matrix of llama-3-8b", "captured", B=B) for B in ROWS]
    read = card.hardware().hbm_bytes_per_s
    product = card.one("calibration", "square product", "bf16, random numbers").flops_per_s
    lines = [
        ["µs", *(f"{run.seconds * 1e6:,.0f}" for run in runs)],
        ["share of the read", *(_share(run.bytes_per_s / read) for run in runs)],
        ["share of the product", *(_share(run.flops_per_s / product) for run in runs)],
    ]
    return _table(["rows", *(f"{B:,}" for B in ROWS)], lines)


def _attention(card: Recorded) -> str:
    read, lines = card.hardware().hbm_bytes_per_s, []
    timed = {run.way for run in card.find("attention", T=1, B=32)}
    kernels = {way: short for way, short in KERNELS.items() if way in timed}
    for run in card.find("attention", way="as torch chooses", T=1):
        at = dict(run.sizes)
        n_bytes = at["B"] * at["S"] * kv_bytes_per_token(1, at["K"], 128)
        took = [card.one("attention", run.what, way, **at).seconds for way in kernels]
        cells = (f"{s * 1e6:,.0f} µs, {_share(n_bytes / s / read)}" for s in took)
        lines.append([f"B = {at['B']}, {at['S']:,} cached, {at['N']}/{at['K']} heads", *cells])
    return _table(["", *kernels.values()], lines)


def _steps(card: Recorded, sheet: Hardware) -> str:
    lines = []
    for part, what, arch, B, S in _step_cases():
        cache = arch.cache_bytes(S, 2)
        floor = memory_step_time_s(arch.step_weight_bytes(B), B, cache, sheet.hbm_bytes_per_s)
        took = [card.one(part, what, way, B=B, S=S).seconds for way in WAYS]
        cells = (f"{s * 1e3:.1f} ms, {_share(floor / s)}" for s in took)
        lines.append([what, str(B), f"{S:,}", f"{floor * 1e3:.1f} ms", *cells])
    return _table(["step of", "B", "cached", "floor", *WAYS], lines)


def _step_cases() -> Iterator[tuple[str, str, Architecture, int, int]]:
    """Part, name, model, B and S of what the table shows."""
    thirteen = model("llama-2-13b")
    for B in (1, 16, 67):
        yield "step", thirteen.name, thirteen, B, 1024
    for B in (1, 64, 352):
        yield "step", f"{thirteen.name} with K = 8", replace(thirteen, K=8), B, 1024


def _contexts(card: Recorded, sheet: Hardware) -> str:
    """Steps for one sequence, with torch's kernel of attention and with the library's choice; last
    what a cached token more costs, between the two longest, where not Python is waited for."""
    arch, read = model("llama-3-8b"), sheet.hbm_bytes_per_s
    ways = [way + kernel for way in WAYS for kernel in (TORCHS, "")]
    took = {
        (S, way): card.one("prefill", arch.name, way, B=1, S=S).seconds
        for S in CONTEXTS
        for way in ways
    }
    lines = []
    for S in CONTEXTS:
        floor = memory_step_time_s(arch.step_weight_bytes(1), 1, arch.cache_bytes(S, 2), read)
        cells = (f"{took[S, way] * 1e3:.1f} ms, {_share(floor / took[S, way])}" for way in ways)
        lines.append([f"{S:,}", f"{floor * 1e3:.1f} ms", *cells])
    shorter, longer = CONTEXTS[-2:]
    floor = arch.cache_bytes_per_token(2) / read
    each = [
        (took[longer, way] - took[shorter, way]) / (longer - shorter)
        for way in ways
        if not way.startswith(WAYS[0])
    ]
    cells = (f"{s * 1e9:.0f} ns, {_share(floor / s)}" for s in each)
    lines.append(["each token more", f"{floor * 1e9:.0f} ns", "–", "–", *cells])
    return _table(["cached", "floor", *ways], lines)


def _prompts(card: Recorded, sheet: Hardware) -> str:
    arch, lines = model("llama-3-8b"), []
    for T in (128, 1024, 8192):
        flops = arch.prefill_flops(1, T, head_at_last_only=True)  # as the bench runs them
        least = compute_time_s(flops, sheet.peak_flops_per_s("bf16"))
        took = card.one("prefill", arch.name, "eager", B=1, T=T).seconds
        times = (f"{s * 1e3:.1f} ms" for s in (least, took))
        lines.append([arch.name, f"{T:,}", *times, _share(least / took)])
    return _table(["prompt of", "tokens", "floor", "eager", "share"], lines)


def _two_cards(first: Recorded, other: Recorded) -> str:
    """What both timed, and how many times as fast the other was."""
    cards, matrix = (first, other), "one matrix of llama-3-8b"
    reads = [card.hardware().hbm_bytes_per_s / 1e12 for card in cards]
    lines = [["reads, TB/s", *(f"{x:.2f}" for x in reads), f"{reads[1] / reads[0]:.2f}"]]
    for name, _, part, way in SQUARES:
        if name in ("bf16, random numbers", "fp8, quick sums"):
            tera = [card.one(part, "square product", way).flops_per_s / 1e12 for card in cards]
            rates = (f"{x:,.0f}" for x in tera)
            lines.append([f"{name}, TFLOP/s", *rates, f"{tera[1] / tera[0]:.2f}"])

    def timed(name: str, per_s: float, part: str, what: str, way: str, **sizes: int) -> None:
        took = [card.one(part, what, way, **sizes).seconds * per_s for card in cards]
        cells = (f"{t:,.3g}" if t < 1000 else f"{t:,.0f}" for t in took)
        lines.append([name, *cells, f"{took[0] / took[1]:.2f}"])

    for B in (1, 64, 128, 192, 256, 8192):
        timed(f"{matrix}, rows: {B:,}, µs", 1e6, "rows", matrix, "captured", B=B)
    for what in ("llama-2-13b", "llama-2-13b with K = 8"):
        for B in (1, 64) if what.endswith("b") else (1, 64, 256):
            timed(f"{what}, B = {B}, ms", 1e3, "step", what, WAYS[2], B=B)
        most = [max(c.find("step", what, WAYS[2]), key=lambda run: run.sizes["B"]) for c in cards]
        sizes, made = [run.sizes["B"] for run in most], [r.sizes["B"] / r.seconds for r in most]
        name = f"{what}, the most that ran: {sizes[0]} and {sizes[1]}, tokens/s"
        lines.append([name, *(f"{rate:,.0f}" for rate in made), f"{made[1] / made[0]:.2f}"])
    for kernel in ("", TORCHS):
        name = f"llama-3-8b, B = 1, 128,000 cached{kernel}, ms"
        timed(name, 1e3, "prefill", "llama-3-8b", WAYS[2] + kernel, B=1, S=128_000)
    timed("llama-3-8b, a prompt of 8,192, eager, ms", 1e3, "prefill", "llama-3-8b", WAYS[0], T=8192)
    timed("trained `gqa`, µs", 1e6, "launches", "gqa", WAYS[2])
    return _table(["", "H100", "H200", "times as fast"], lines)


def _share(x: float) -> str:
    return f"{x:.2f}".lstrip("0")


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))


if __name__ == "__main__":
    print("\n\n".join(tables()))
