"""Bars as inline SVG, drawn by hand so that the page needs neither script nor picture files. The
course's colors, on a white card."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from twophase.grading.reports.feedback import text

# the figures' own: Okabe and Ito's
BLUE, VERMILION, INK, GRID = ("#0072B2", "#D55E00", "#222222", "#D9D9D9")
WIDTH, LEFT, RIGHT, TOP = 640, 56, 16, 24
FONT = 'font-family="system-ui, sans-serif"'


def ticks(most: float) -> list[float]:
    """Round numbers from 0 to at least `most`: steps of 1, 2 or 5 times a power of ten, at most
    six."""
    step = next(s for s in (f * 10.0**p for p in range(-3, 12) for f in (1, 2, 5)) if s * 5 >= most)
    return [
        round(step * n, 3) for n in itertools.takewhile(lambda n: step * (n - 1) < most, range(7))
    ]


def columns(bars: Sequence[tuple[str, int]], name: str, xlabel: str, ylabel: str, alt: str) -> str:
    """Upright bars for counts. `name` is unique in the page."""
    height, bottom = 250, 46
    marks = [t for t in ticks(max(1, *(n for _, n in bars))) if t == int(t)]
    plot_h, plot_w, top = height - TOP - bottom, WIDTH - LEFT - RIGHT, marks[-1]
    parts = []
    for t in marks:
        y = TOP + plot_h * (1 - t / top)
        parts.append(_line(LEFT, y, WIDTH - RIGHT, y) + _text(LEFT - 8, y + 4, f"{t:g}", "end"))
    slot = plot_w / len(bars)
    for k, (label, n) in enumerate(bars):
        x, h = LEFT + k * slot, plot_h * n / top
        parts.append(_bar(x + slot * 0.1, TOP + plot_h - h, slot * 0.8, h, BLUE))
        parts.append(_text(x + slot / 2, height - bottom + 16, label, "middle"))
        parts += [_text(x + slot / 2, TOP + plot_h - h - 4, str(n), "middle")] if n else []
    parts.append(_text(LEFT + plot_w / 2, height - 8, xlabel, "middle"))
    middle = TOP + plot_h / 2
    parts.append(
        f'<text x="15" y="{middle:g}" text-anchor="middle" transform="rotate(-90 15'
        f' {middle:g})">{text(ylabel)}</text>'
    )
    return _svg(parts, height, name, alt)


def rows(
    bars: Sequence[tuple[str, float]], name: str, xlabel: str, alt: str, color: str = VERMILION
) -> str:
    """Lying bars with their names in front, the longest first as given."""
    left, line, bottom = 256, 26, 44
    height = TOP + line * len(bars) + bottom
    marks = ticks(max(v for _, v in bars) or 1.0)
    plot_w, base = WIDTH - left - 48, TOP + line * len(bars)
    parts = []
    for t in marks:
        x = left + plot_w * t / marks[-1]
        parts.append(_line(x, TOP, x, base) + _text(x, base + 16, f"{t:g}", "middle"))
    for k, (label, value) in enumerate(bars):
        y, w = TOP + k * line, plot_w * value / marks[-1]
        parts.append(_bar(left, y + 4, w, line - 8, color))
        parts.append(_text(left - 8, y + line / 2 + 4, shortened(label), "end"))
        parts.append(_text(left + w + 5, y + line / 2 + 4, f"{value:.3g}", "start"))
    parts.append(_text(left + plot_w / 2, height - 8, xlabel, "middle"))
    return _svg(parts, height, name, alt)


def shortened(label: str, most: int = 32) -> str:
    return label if len(label) <= most else f"{label[: most - 1].rstrip()}…"


def _bar(x: float, y: float, w: float, h: float, color: str) -> str:
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{w:.2f}" height="{h:.2f}" fill="{color}"/>'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" stroke="{GRID}"/>'


def _text(x: float, y: float, said: str, anchor: str) -> str:
    return f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}">{text(said)}</text>'


def _svg(parts: Sequence[str], height: float, name: str, alt: str) -> str:
    """A figure whose alternative text is read in place of its parts."""
    card = f'<rect width="{WIDTH}" height="{height:g}" fill="#fff"/>'
    start = (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-labelledby="{text(name)}" {FONT}'
        f' font-size="13" fill="{INK}">'
    )
    return (
        f"<figure>{start}<title"
        f' id="{text(name)}">{text(alt)}</title>{card}{"".join(parts)}</svg></figure>'
    )
