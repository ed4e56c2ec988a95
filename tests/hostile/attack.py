"""What a hostile notebook is, and how an attack is put into one.

Every attack is written twice: into a notebook whose other answers are right, and into an untouched one, where it must earn nothing.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path

from hostile.course import RIGHT, STUBS, cell, cells, dump

# every file that an attack tries to leave somewhere has this in its name
LEFT_BEHIND = "left-behind-by-a-submission"
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Hostile:
    """A notebook, the answers that it loses, and a flag that it must raise, if any.

    `empty` is the same attack without any answer. `needs` names what of `confined_by` it takes to withstand it.
    """

    name: str
    data: bytes
    lost: frozenset[str]
    flag: str = ""
    empty: bytes | None = None
    needs: str = ""


def in_answer_cell(name: str, attack: str, loses: bool, flag: str = "", needs: str = "") -> Hostile:
    """The attack in the first answer's cell, before the right answer."""
    data, empty = (
        dump(cells(base | {"bytes": f"{attack}\n{base['bytes']}"}))
        for base in (dict(RIGHT), dict(STUBS))
    )
    return Hostile(f"cell: {name}", data, frozenset({"bytes"} if loses else ()), flag, empty, needs)


def in_own_cell(
    name: str, attack: str, flag: str = "", loses: str = "", needs: str = ""
) -> Hostile:
    """The attack in a cell of the submission's own, before all answers: no answer may suffer."""
    made = []
    for base in (RIGHT, STUBS):
        inside = cells(dict(base))
        inside.insert(1, cell(attack))
        made.append(dump(inside))
    return Hostile(f"own cell: {name}", made[0], frozenset(loses.split()), flag, made[1], needs)


def as_answer(name: str, body: str, flag: str = "", before: str = "", needs: str = "") -> Hostile:
    """The attack in the body of the first answer, when it is called; `before` stands above it in its cell."""
    return instead(
        name,
        "bytes",
        f"{before}\ndef bytes_of(n_tokens, width):\n{textwrap.indent(body, '    ')}",
        flag,
        needs,
    )


def instead(name: str, slug: str, source: str, flag: str = "", needs: str = "") -> Hostile:
    """The attack as the whole cell of an answer, which is lost."""
    data, empty = (dump(cells({**base, slug: source})) for base in (RIGHT, STUBS))
    return Hostile(f"answer: {name}", data, frozenset({slug}), flag, empty, needs)


def breach(name: str, body: str, needs: str = "", flag: str = "") -> Hostile:
    """An attempt to get at something: the first answer is right if `body` returns anything true, so it must be lost."""
    source = (
        f"import os, sys\ndef breach():\n{textwrap.indent(body.strip(), '    ')}\n"
        "try:\n    inside = breach()\nexcept BaseException:\n    inside = False\n"
        f"if inside:\n{textwrap.indent(RIGHT['bytes'], '    ')}\n"
        "else:\n    def bytes_of(n_tokens, width): return -1"
    )
    return instead(name, "bytes", source, flag, needs)


def keeps(name: str, source: str, slug: str = "bytes", needs: str = "") -> Hostile:
    """An ordinary answer, written differently: nothing is lost."""
    return Hostile(f"honest: {name}", dump(cells(RIGHT | {slug: source})), frozenset(), needs=needs)


def keeps_beside(name: str, source: str, needs: str = "") -> Hostile:
    """An ordinary cell of the submission's own, before the answers and once more after them: nothing is lost."""
    made = cells(dict(RIGHT))
    return Hostile(
        f"honest cell: {name}",
        dump([made[0], cell(source), *made[1:], cell(source)]),
        frozenset(),
        needs=needs,
    )
