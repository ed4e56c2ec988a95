"""What the reader of a ``{play}`` box can change: sliders, and menus whose options come from the
package."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from book_play_formula import PlayError, as_float, follow, resolve, take


@dataclass(frozen=True)
class Input:
    """A slider (numbers) or a menu (options: label → numbers for one or more names)."""

    name: str
    label: str
    unit: str = ""
    low: float = 0.0
    high: float = 1.0
    value: float | str = 0.0
    step: float = 1.0
    log: bool = False
    values: tuple[float, ...] = ()
    options: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def symbols(self) -> dict[str, bool]:
        """The names that it sets, and whether they are never zero."""
        if not self.options:
            return {self.name: self.low > 0}
        states = list(self.options.values())
        return {name: all(state[name] > 0 for state in states) for name in states[0]}

    @property
    def start(self) -> Mapping[str, float]:
        """The numbers of the box's first state."""
        return self.options[str(self.value)] if self.options else {self.name: float(self.value)}


def read_input(name: str, entry: dict[str, Any]) -> Input:
    """The slider or menu of a YAML mapping."""
    where = f"input {name!r}"
    allowed = {"label", "unit", "min", "max", "value", "step", "scale", "values", "options"}
    take(entry, allowed, where)
    if not name.isidentifier():
        raise PlayError(f"{where}: a name is letters, digits and underscores")
    label, unit = str(entry.get("label", name)), str(entry.get("unit", ""))
    if "options" in entry:
        return _menu(name, label, unit, entry, where)
    values = tuple(as_float(value, where) for value in entry.get("values", ()))
    low = as_float(values[0] if values else entry.get("min"), f"{where}: min")
    high = as_float(values[-1] if values else entry.get("max"), f"{where}: max")
    value = as_float(entry.get("value"), f"{where}: value")
    log = entry.get("scale", "linear") == "log"
    if not low <= value <= high or low >= high:
        raise PlayError(
            f"{where} needs min < max and a value between them, got {low}, {high}, {value}"
        )
    if values and value not in values:
        raise PlayError(f"{where} starts at {value}, which is none of its values")
    if log and low <= 0:
        raise PlayError(f"{where}: a log scale starts above zero")
    step = as_float(entry.get("step", 1), where)
    if not values and any(end % step for end in (low, high, value)):
        raise PlayError(f"{where}: min, max and value are multiples of its step, {step:g}")
    return Input(name, label, unit, low, high, value, step, log, values)


def _menu(name: str, label: str, unit: str, entry: Mapping[str, Any], where: str) -> Input:
    groups = entry["options"] if isinstance(entry["options"], list) else [entry["options"]]
    options: dict[str, Mapping[str, float]] = {}
    for group in groups:
        options |= _options(group, where)
    if len({tuple(numbers) for numbers in options.values()}) != 1:
        raise PlayError(f"{where}: every option must set the same names")
    value = str(entry.get("value", next(iter(options))))
    if value not in options:
        raise PlayError(f"{where} starts at {value!r}, which is none of its options")
    return Input(name, label, unit, value=value, options=options)


def _options(group: Any, where: str) -> dict[str, Mapping[str, float]]:
    """Entries of a mapping of the package, by their keys, each with what it sets: name → steps to
    a number, "" for the entry itself. Numbers typed into the page are none."""
    if not isinstance(group, Mapping):
        raise PlayError(f"{where}: options are taken of a mapping of the package: of, keys, set")
    take(group, {"of", "keys", "set", "label"}, f"{where}: options")
    try:
        path, keys, sets = str(group["of"]), list(group["keys"]), dict(group["set"])
    except KeyError as error:
        raise PlayError(f"{where}: options lack {error.args[0]!r}") from None
    made = {}
    for key in keys:
        entry = follow(resolve(path), f"[{key}]", path)
        numbers = {
            name: as_float(follow(entry, str(steps), f"{path}[{key}]"), where)
            for name, steps in sets.items()
        }
        made[str(group.get("label", "{}")).format(key)] = numbers
    return made
