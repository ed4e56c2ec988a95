"""RoPE's settings in a config.json: `rope_theta` and `rope_scaling` of old files, `rope_parameters` of new ones."""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def rope_fields(text: Json) -> dict[str, Any]:
    """What a Config needs to know."""
    rope = text.get("rope_scaling") or text.get("rope_parameters") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ValueError(f"rope_scaling type {kind!r} is not supported.")
    return {}
