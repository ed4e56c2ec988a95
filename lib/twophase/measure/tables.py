"""Tables of numbers for notebooks, pages and terminals, and numbers with their units."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from numbers import Integral, Real

_PREFIXES = (
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
    (1e-9, "n"),
)

# "1.07 GB", "≤ 2.851", "1.642 ± 0.040", "2.6 to 3.3", "2021-06": what stands on one line
_QUANTITY = re.compile(
    r"[-+\u2212\u2264\u2265~]?\s?\d[\d.,]*(e[-+]?\d+)?(\s?([\u00b1-]|to)\s?\d[\d.,]*)?(\s?[^\s\d]{1,10})?"
)
_SHORT = 16  # characters of a cell that is not broken into lines
_LONG_WORD = 24  # characters of a word that is broken after its slashes


def si(value: float, unit: str = "", digits: int = 3) -> str:
    """A number with an SI prefix: `si(3.2e9, "B/s")` is `3.2 GB/s`, `si(0.0042, "s")` is `4.2 ms`.
    GB is 10⁹ bytes.

    Prefixes below one are for seconds, meters and the like; a count under a thousand keeps its own
    digits.
    """
    if not math.isfinite(value) or value == 0:
        return f"{value:g} {unit}".strip()
    magnitude = float(f"{abs(value):.{digits - 1}e}")  # round first, so that 999.9 becomes 1 k
    factor, prefix = next(((f, p) for f, p in _PREFIXES if magnitude >= f), _PREFIXES[-1])
    if factor < 1 and unit != "s":
        factor, prefix = 1.0, ""
    return f"{_significant(value / factor, digits)} {prefix}{unit}".strip()


def binary(n_bytes: float, digits: int = 3) -> str:
    """Bytes with a binary prefix: `binary(2**30)` is `1 GiB`."""
    power = 0
    while abs(n_bytes) >= 1024 and power < 5:
        n_bytes /= 1024
        power += 1
    return f"{_significant(n_bytes, digits)} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[power]}"


def _significant(value: float, digits: int) -> str:
    """`digits` significant digits, without an exponent for everyday sizes and without trailing
    zeros."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    exponent = math.floor(math.log10(abs(value)))
    if exponent >= 15 or exponent < -5:
        return f"{value:.{digits - 1}e}"
    text = f"{round(value, digits - 1 - exponent):,.{max(0, digits - 1 - exponent)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def cell_text(value: object, digits: int = 4) -> str:
    """How a table prints a value: integers with separators, other numbers with `digits` significant
    digits, None as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return f"{int(value):,}"
    if isinstance(value, Real):
        return _significant(float(value), digits)
    return str(value)


class Table:
    """Rows under named columns. A notebook shows it as an accessible HTML table, `print` as aligned
    text.

    `rows`: one sequence per row, or one mapping from column to value. `columns`: the headings,
    units in them; may be left out if rows are mappings. `caption`: says what the reader looks at.
    Numbers and quantities ("1.07 GB") are aligned right. Raises ValueError when a row does not fit the columns.
    """

    def __init__(
        self,
        rows: Iterable[Sequence[object] | dict[str, object]],
        columns: Sequence[str] = (),
        caption: str = "",
        digits: int = 4,
    ) -> None:
        given = list(rows)
        first = given[0] if given else ()
        self.columns = list(columns) or list(first.keys() if isinstance(first, dict) else ())
        if not self.columns or not all(name.strip() for name in self.columns):
            raise ValueError("A table needs columns: pass their names, or rows that are mappings.")
        self.caption, self.digits = caption, digits
        self.rows = [
            [row.get(c) for c in self.columns] if isinstance(row, dict) else list(row)
            for row in given
        ]
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"Row {number} has {len(row)} values; the table has {len(self.columns)}"
                    " columns."
                )

    def column(self, name: str) -> list[object]:
        """The values of one column."""
        if name not in self.columns:
            raise ValueError(
                f"There is no column {name!r}; the columns are {', '.join(self.columns)}."
            )
        return [row[self.columns.index(name)] for row in self.rows]

    def _texts(self) -> list[list[str]]:
        return [[cell_text(value, self.digits) for value in row] for row in self.rows]

    def _right(self, index: int) -> bool:
        """Numbers only, or mostly quantities; in the first column, which may hold names, all."""
        kept = [row[index] for row in self.rows if row[index] not in (None, "–", "")]
        if kept and all(isinstance(v, Real) and not isinstance(v, bool) for v in kept):
            return True
        quantities = [v for v in kept if v == "none" or _QUANTITY.fullmatch(cell_text(v))]
        return 2 * len(quantities) > len(kept) if index else 0 < len(kept) == len(quantities)

    def __str__(self) -> str:
        texts = self._texts()
        widths = [max(len(r[i]) for r in [self.columns, *texts]) for i in range(len(self.columns))]
        right = [self._right(i) for i in range(len(self.columns))]

        def line(cells: Sequence[str]) -> str:
            padded = [
                c.rjust(w) if r else c.ljust(w)
                for c, w, r in zip(cells, widths, right, strict=True)
            ]
            return "  ".join(padded).rstrip()

        lines = [line(self.columns), "  ".join("-" * w for w in widths), *map(line, texts)]
        return "\n".join([self.caption, "", *lines] if self.caption else lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        align = ["right" if self._right(i) else "left" for i in range(len(self.columns))]
        styles = [f' style="text-align: {side}"' for side in align]
        head = "".join(
            f'<th scope="col"{s}>{_with_whole_units(c)}</th>'
            for c, s in zip(self.columns, styles, strict=True)
        )
        body = "\n".join(f"<tr>{_html_row(cells, styles)}</tr>" for cells in self._texts())
        said = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(self.caption))
        caption = f"<caption>{said}</caption>\n" if said else ""
        return (
            "<table"
            f' class="table">\n{caption}<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>'
        )


def _with_whole_units(name: str) -> str:
    """A heading, escaped; no line ends within a `tokens/s`, as it does in Firefox after a slash."""
    whole = '<span style="white-space: nowrap">{}</span>'
    words = (escape(word) for word in name.split(" "))
    return " ".join(
        whole.format(word) if "/" in word.strip("/") and len(word) <= _SHORT else word
        for word in words
    )


def _html_row(cells: Sequence[str], styles: Sequence[str]) -> str:
    """The first cell names its row."""
    styled = [
        style[:-1] + '; white-space: nowrap"' if len(cell) <= _SHORT else style
        for cell, style in zip(cells, styles, strict=True)
    ]
    first = f'<th scope="row"{styled[0]}>{_breakable(cells[0])}</th>'
    return first + "".join(
        f"<td{style}>{_breakable(cell)}</td>"
        for cell, style in zip(cells[1:], styled[1:], strict=True)
    )


def _breakable(text: str) -> str:
    """Escaped, and an address may be broken after each slash."""
    words = text.split(" ")
    return " ".join(
        escape(word).replace("/", "/<wbr>") if len(word) > _LONG_WORD else escape(word)
        for word in words
    )
