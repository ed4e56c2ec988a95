"""A chip of one's own: a YAML file with the fields of `Hardware`, or a name of the catalog."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from twophase.theory import catalog
from twophase.theory.hardware import BYTES_PER_VALUE, OVERHEADS, Hardware

SUFFIXES = (".yaml", ".yml")
FIELDS = ("name", "flops_per_s", "hbm_bytes_per_s", "hbm_bytes")
OPTIONAL = ("link_bytes_per_s", "link", "source", "date", "measured", "overheads")
SHAPE = "such as `flops_per_s: {bf16: 4.1e13}`"


def chip(name: str) -> Hardware:
    """The catalog's chip of that name, or the one that a YAML file describes. ValueError with a
    sentence for a name that is unknown and a file that is no card."""
    if not name.lower().endswith(SUFFIXES):
        return catalog.hardware(name)
    import yaml

    try:
        found = yaml.safe_load(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"Cannot read {name}: {error.strerror or error}.") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise ValueError(f"{name} is not YAML: {str(error).splitlines()[0]}.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{name} must hold {', '.join(FIELDS)}, but it holds {found!r:.60}.")
    return _card(name, found)


def _card(name: str, found: dict[Any, Any]) -> Hardware:
    missing = [field for field in FIELDS if found.get(field) is None]
    unknown = [str(key) for key in found if key not in (*FIELDS, *OPTIONAL)]
    if missing or unknown:
        wrong = f"has no {missing[0]}" if missing else f"has {unknown[0]!r}, which is no field"
        known = ", ".join((*FIELDS, *OPTIONAL))
        raise ValueError(f"{name} {wrong}. A card has {known}; rates are per second, sizes bytes.")
    rates = found["flops_per_s"]
    if not isinstance(rates, dict) or not set(rates) <= set(BYTES_PER_VALUE):
        known = ", ".join(BYTES_PER_VALUE)
        raise ValueError(f"flops_per_s of {name} must give rates by format ({known}), {SHAPE}.")
    sizes = ("hbm_bytes_per_s", "hbm_bytes")
    numbers: dict[str, Any] = {key: _number(name, key, found[key]) for key in sizes}
    if found.get("link_bytes_per_s") is not None:
        numbers["link_bytes_per_s"] = _number(name, "link_bytes_per_s", found["link_bytes_per_s"])
    by_format = {key: _number(name, f"flops_per_s of {key}", rate) for key, rate in rates.items()}
    words: dict[str, Any] = {
        key: str(found[key]) for key in ("link", "source", "date") if found.get(key)
    }
    return Hardware(
        name=str(found["name"]), flops_per_s=by_format, measured=bool(found.get("measured")),
        overheads=_overheads(name, found.get("overheads")), **numbers, **words,
    )  # fmt: skip


def _overheads(name: str, found: object) -> dict[str, float] | None:
    """What an engine spends beyond the floor, if the card says it."""
    if found is None:
        return None
    if not isinstance(found, dict) or set(found) != set(OVERHEADS):
        raise ValueError(f"overheads of {name} must give {', '.join(OVERHEADS)}, in seconds.")
    return {key: _number(name, key, found[key], zero=True) for key in OVERHEADS}


def _number(name: str, field: str, value: object, *, zero: bool = False) -> float:
    """YAML reads 4e13 as text: a number needs its point there, so text is taken, too."""
    try:
        number = float(value) if not isinstance(value, bool) else -1.0  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = -1.0
    if not (0 < number < 1e30 or (zero and number == 0)):
        least = "a number, zero or more" if zero else "a positive number"
        raise ValueError(f"{field} of {name} must be {least}, but it is {value!r}.")
    return number


def write(hardware: Hardware, path: Path) -> None:
    """A chip as a card. OSError if the file cannot be written."""
    import yaml

    kept = {key: value for key, value in asdict(hardware).items() if value not in (None, "")}
    path.write_text(yaml.safe_dump(kept, sort_keys=False), encoding="utf-8")
