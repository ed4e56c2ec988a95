"""Reading a YAML file strictly: every value is text until it is asked for, and every mistake is a
sentence with its path."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import yaml

T = TypeVar("T")
NUMBER = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?")
Value = Any  # str, list or dict of these


class _Loader(yaml.SafeLoader):
    """Scalars stay text, so that 0123 is no octal number, 23:59 no sexagesimal one and `no` no
    truth value. No key twice."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(
                    problem="a key is not plain text", problem_mark=key.start_mark
                )
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{key.value!r} is there twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=True)


def read_yaml(path: Path) -> Value:
    """The file as text, lists and mappings. Raises ValueError: no such file, not text, not YAML, a
    key twice."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    except OSError as e:
        raise ValueError(f"{path} cannot be read ({e.strerror})") from None
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except yaml.MarkedYAMLError as e:
        line = f", line {e.problem_mark.line + 1}" if e.problem_mark else ""
        raise ValueError(f"{path}{line}: {e.problem}") from None
    except (yaml.YAMLError, RecursionError) as e:
        raise ValueError(f"{path} is no YAML file ({str(e).splitlines()[0]})") from None


def nearest(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean 'due'?`, or the list of what there is."""
    names = sorted(known)
    near = difflib.get_close_matches(wrong, names, 1, 0.5)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known here: {', '.join(names)}" if names else ""


class Fields:
    """One mapping of a file, read key by key. Mistakes are collected, so that all are told at
    once."""

    def __init__(self, value: Value, path: str, mistakes: list[str]) -> None:
        self.path, self.mistakes, self._known = path, mistakes, list[str]()
        if not isinstance(value, dict):
            if value not in ("", None):
                self.wrong("", f"expected `key: value` lines, found {shown(value)}")
            value = {}
        self._value: dict[str, Value] = {str(k): v for k, v in value.items()}

    def at(self, key: str) -> str:
        return ".".join(p for p in (self.path, key) if p)

    def wrong(self, key: str, says: str) -> None:
        where = self.at(key)
        self.mistakes.append(f"{where}: {says}" if where else says)

    def __contains__(self, key: str) -> bool:
        self._known.append(key)
        return key in self._value

    def get(self, key: str, convert: Callable[[Value], T], default: T) -> T:
        """The value of `key`, converted; `default` if it is absent or wrong (which is then
        noted)."""
        if key not in self:
            return default
        try:
            return convert(self._value[key])
        except ValueError as e:
            self.wrong(key, str(e))
            return default

    def inner(self, key: str) -> Fields:
        """The mapping below `key`; an empty one if it is absent."""
        return Fields(self._value[key] if key in self else {}, self.at(key), self.mistakes)

    def each(self, convert: Callable[[str, Value], T]) -> dict[str, T]:
        """Every key of a mapping whose keys are names; those with mistakes are left out."""
        found: dict[str, T] = {}
        for key in self._value:
            self._known.append(key)
            try:
                found[key] = convert(key, self._value[key])
            except ValueError as e:
                self.wrong(key, str(e))
        return found

    def rows(self, key: str) -> list[Fields]:
        """The mappings of the list below `key`."""
        value = self._value.get(key, []) if key in self else []
        if not isinstance(value, list):
            if value != "":
                self.wrong(key, f"expected a list of `- key: value` lines, found {shown(value)}")
            return []
        return [Fields(v, f"{self.at(key)}[{n}]", self.mistakes) for n, v in enumerate(value, 1)]

    def done(self) -> None:
        """Refuse whatever was not asked for."""
        for key in self._value:
            if key not in self._known:
                self.wrong(key, f"there is no such key{nearest(key, self._known)}")


def shown(value: Value) -> str:
    if isinstance(value, list):
        return "a list"
    return "a mapping" if isinstance(value, dict) else repr(str(value)[:60])


def text(value: Value) -> str:
    """Text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected text, found {'nothing' if value == '' else shown(value)}")
    return value.strip()


def number(value: Value) -> Fraction:
    """A number of points: not negative, finite, exact."""
    said = text(value)
    if not NUMBER.fullmatch(said):
        raise ValueError(f"{said!r} is no number of points; write one such as 4 or 2.5")
    return Fraction(said)


def whole(value: Value) -> int:
    said = text(value)
    if not (said.isascii() and said.isdigit()) or len(said) > 4:
        raise ValueError(f"{said!r} is no whole number; write one such as 1")
    return int(said)


def percent(value: Value) -> Fraction:
    """`10%`, from 0 to 100. The sign is required: 0.1 and 10 could both be meant."""
    said = text(value)
    if not said.endswith("%"):
        raise ValueError(f"{said!r} is no percentage; write it with its sign, such as 10%")
    try:
        found = number(said.removesuffix("%").strip()) / 100
    except ValueError:
        raise ValueError(f"{said!r} is no percentage; write one such as 10%") from None
    if found > 1:
        raise ValueError(f"{said} is more than 100%")
    return found


def yes(value: Value) -> bool:
    said = text(value)
    if said not in ("yes", "no", "true", "false"):
        raise ValueError(f"{said!r} is neither yes nor no")
    return said in ("yes", "true")


def one_of(*choices: str) -> Callable[[Value], str]:
    """A converter that accepts these words only."""

    def convert(value: Value) -> str:
        said = text(value)
        if said not in choices:
            raise ValueError(
                f"{said!r} is not one of"
                f" {', '.join(choices)}{nearest(said, choices) if len(choices) > 3 else ''}"
            )
        return said

    return convert


def names(value: Value) -> tuple[str, ...]:
    """A list of names without repetition, at least one."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"expected a list of names such as [ann, bob], found {shown(value)}")
    found = tuple(text(v) for v in value)
    _unique(found)
    return found


def _unique(found: Sequence[str]) -> None:
    twice = [n for n in found if found.count(n) > 1]
    if twice:
        raise ValueError(f"{twice[0]!r} is there twice")
