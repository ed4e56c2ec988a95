"""Single values of a Hugging Face config.json, each checked: a sentence that names the key instead
of a wrong size."""

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]


def need(config: Config, *keys: str) -> Any:
    """The first of these keys that is there and not null; ValueError names the first when none
    is."""
    for key in keys:
        if config.get(key) is not None:
            return config[key]
    raise ValueError(
        f"The config of model_type {config.get('model_type')!r} has no key {keys[0]!r}."
    )


def size(config: Config, *keys: str) -> int:
    value = need(config, *keys)
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError(
            f"The config's {keys[0]!r} must be a positive integer, but it is {value!r}."
        )
    return value


def count(config: Config, key: str, default: int = 0) -> int:
    value = config.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"The config's {key!r} must be a whole number, but it is {value!r}.")
    return value


def flag(config: Config, key: str, default: bool = False) -> bool:
    """A switch; null is off. Text such as "false" would count as on, so that it is refused."""
    value = config.get(key, default)
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"The config's {key!r} must be true or false, but it is {value!r}.")
    return bool(value)


def number(config: Config, key: str, default: float) -> float:
    value = default if config.get(key) is None else config[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e30:
        raise ValueError(f"The config's {key!r} must be a positive number, but it is {value!r}.")
    return float(value)
