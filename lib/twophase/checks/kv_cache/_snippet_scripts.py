"""What kv_cache-snippet takes for a valid input."""

from __future__ import annotations

from typing import Any

Script = dict[str, Any]
DTYPES = ("float32", "bfloat16", "float16", "float64")


def problem(scripts: Any) -> str:
    """Why the scripts are no valid input, in one sentence; empty if they are."""
    if not isinstance(scripts, list | tuple) or not 1 <= len(scripts) <= 10:
        return "expose() must return a list of 1 to 10 inputs"
    return next((p for p in map(_script_problem, scripts) if p), "")


def _script_problem(script: Any) -> str:
    if not isinstance(script, dict) or set(script) != {"n_sequences", "S_max", "dtype", "blocks"}:
        return 'an input is a dict with the keys "n_sequences", "S_max", "dtype", "blocks"'
    n_sequences, blocks = script["n_sequences"], script["blocks"]
    if not _between(1, n_sequences, 8) or not _between(1, script["S_max"], 64):
        return "n_sequences must be a whole number from 1 to 8, S_max one from 1 to 64"
    if script["dtype"] not in DTYPES:
        return f"dtype must be one of {', '.join(DTYPES)}"
    if not isinstance(blocks, list | tuple) or not 1 <= len(blocks) <= 20:
        return "blocks must be a list of 1 to 20 pairs [rows, T]"
    return next((p for p in (_block_problem(block, n_sequences) for block in blocks) if p), "")


def _block_problem(block: Any, n_sequences: int) -> str:
    if not isinstance(block, list | tuple) or len(block) != 2 or not _between(1, block[1], 64):
        return "a block is a pair [rows, T], T a whole number from 1 to 64"
    rows = block[0]
    if (
        not isinstance(rows, list | tuple)
        or not rows
        or not all(_between(0, b, n_sequences - 1) for b in rows)
    ):
        return "rows must be a list of sequences, each from 0 to n_sequences − 1, at least one"
    return "" if len(set(rows)) == len(rows) else "rows must not name a sequence twice"


def _between(low: int, value: Any, high: int) -> bool:
    return type(value) is int and low <= value <= high
