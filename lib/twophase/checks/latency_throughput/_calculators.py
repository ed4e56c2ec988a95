"""KV calculators for latency_throughput-calculator: the printed one, its faults one by one, and
what a valid call is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Config = dict[str, Any]
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
REQUIRED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "torch_dtype")
OPTIONAL = ("num_key_value_heads", "head_dim")


def kv_heads(c: Config) -> int:
    given = c.get("num_key_value_heads")
    return int(c["num_attention_heads"] if given is None else given)


def head_width(c: Config) -> int:
    given = c.get("head_dim")
    return int(c["hidden_size"] // c["num_attention_heads"] if given is None else given)


def value_bytes(c: Config) -> int:
    return BYTES[c["torch_dtype"]]


def query_heads(c: Config) -> int:
    return int(c["num_attention_heads"])


def width_over_heads(c: Config) -> int:
    return int(c["hidden_size"] // c["num_attention_heads"])


def only_float16_is_short(c: Config) -> int:
    return 2 if c["torch_dtype"] == "float16" else 4


def calculator(
    heads: Callable[[Config], int] = kv_heads,
    width: Callable[[Config], int] = head_width,
    size: Callable[[Config], int] = value_bytes,
) -> Callable[[Config, int, int], int]:
    """The calculator with parts replaced; with none replaced it is right."""

    def kv_cache_bytes(config: Config, B: int, S: int) -> int:
        return (
            2
            * B
            * S
            * int(config["num_hidden_layers"])
            * heads(config)
            * width(config)
            * size(config)
        )

    return kv_cache_bytes


RIGHT = calculator()
PRINTED = calculator(query_heads, width_over_heads, only_float16_is_short)
FAULTS = {
    "query heads for KV heads": calculator(heads=query_heads),
    "head_dim ignored": calculator(width=width_over_heads),
    "bfloat16 taken for four bytes": calculator(size=only_float16_is_short),
}


def problem(calls: Any) -> str:
    """Why the calls are no valid input, in one sentence; empty if they are."""
    if not isinstance(calls, list | tuple) or not 1 <= len(calls) <= 10:
        return "expose() must return a list of 1 to 10 calls"
    return next((p for p in map(_call_problem, calls) if p), "")


def _call_problem(call: Any) -> str:
    if not isinstance(call, list | tuple) or len(call) != 3:
        return "a call is a triple [config, B, S]"
    config, B, S = call
    if not (_size(B) and _size(S)):
        return "B and S must be whole numbers from 1 to 1,000,000"
    return _config_problem(config)


def _config_problem(c: Any) -> str:
    if not isinstance(c, dict) or not set(REQUIRED) <= set(c) <= {*REQUIRED, *OPTIONAL}:
        return (
            f"a config is a dict with the keys {', '.join(REQUIRED)} and perhaps"
            f" {' and '.join(OPTIONAL)}"
        )
    if c["torch_dtype"] not in list(BYTES):  # a list: it may be something that cannot be hashed
        return f"torch_dtype must be one of {', '.join(BYTES)}"
    sizes = [c[k] for k in REQUIRED[:3]] + [c[k] for k in OPTIONAL if c.get(k) is not None]
    if not all(map(_size, sizes)):
        return "sizes must be whole numbers from 1 to 1,000,000"
    if c["num_attention_heads"] % kv_heads(c):
        return "num_attention_heads must be a multiple of num_key_value_heads"
    if c.get("head_dim") is None and c["hidden_size"] % c["num_attention_heads"]:
        return "without head_dim, hidden_size must be a multiple of num_attention_heads"
    return ""


def _size(value: Any) -> bool:
    return type(value) is int and 1 <= value <= 1_000_000


def width_over_kv_heads(c: Config) -> int:
    given = c.get("head_dim")
    return int(c["hidden_size"] // kv_heads(c) if given is None else given)


def get_kv_heads(c: Config) -> Any:
    """None where the key is there and holds None."""
    return c.get("num_key_value_heads", c["num_attention_heads"])


def get_head_dim(c: Config) -> Any:
    """The same for the head's width."""
    return c.get("head_dim", width_over_heads(c))
