"""Which values the cases of an exercise hand to an answer: at every seed, at some seed, and what
the task names."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from twophase.checks.answer import LocalAnswer
from twophase.checks.exercise import Exercise
from twophase.checks.judge import Bench

Seen = dict[str, "Values"]  # name of an argument, or of a part of one -> what it was


@dataclass
class Values:
    """The values of one argument: the least and the largest number, or the words that were met."""

    low: float = math.inf
    high: float = -math.inf
    words: set[str] = field(default_factory=set)

    def add(self, value: float | str) -> None:
        if isinstance(value, str):
            self.words.add(value)
        else:
            self.low, self.high = min(self.low, value), max(self.high, value)

    def __str__(self) -> str:
        numbers = [f"{self.low:.6g} … {self.high:.6g}"] if self.low <= self.high else []
        return ", ".join(numbers + sorted(self.words)[:8])


@dataclass(frozen=True)
class Drawn:
    """One argument: its values at every seed, at some seed, and the range that the task names.
    `short` if not every seed reaches both ends of it."""

    name: str
    always: str
    sometimes: str
    named: str
    short: bool


def drawn(exercise: Exercise, benches: list[Bench]) -> list[Drawn]:
    """What the cases of these seeds hand to an answer."""
    seeds = [_seen(bench) for bench in benches]
    found = []
    for name in dict.fromkeys(n for seen in seeds for n in seen):
        each = [seen.get(name, Values()) for seen in seeds]
        always = Values(
            max(v.low for v in each),
            min(v.high for v in each),
            set.intersection(*(v.words for v in each)),
        )
        some = Values(
            min(v.low for v in each),
            max(v.high for v in each),
            set().union(*(v.words for v in each)),
        )
        low, high = exercise.ranges.get(name, (math.inf, -math.inf))
        short = low <= high and not (always.low <= low and always.high >= high)
        named = f"{low:.6g} … {high:.6g}" if low <= high else ""
        found.append(Drawn(name, str(always), str(some), named, short))
    for name in exercise.ranges.keys() - {d.name for d in found}:
        found.append(Drawn(name, "", "never drawn", "", True))
    return found


def arguments(bench: Bench) -> set[str]:
    """The names of the arguments that hold numbers, alone or in lists, dicts and arrays."""
    with_numbers = (name for name, v in _seen(bench).items() if v.low <= v.high)
    return {word for name in with_numbers for word in re.findall(r"\w+", name)}


def _seen(bench: Bench) -> Seen:
    """The arguments of every call that the cases of one seed make."""
    seen: Seen = {}
    exercise = bench.exercise
    names = exercise.namespace(exercise.reference)
    for case in bench.cases:
        exercise.look(Recorder(LocalAnswer(names), names, seen), case)
    return seen


class Recorder:
    """An answer, or an object of one, that notes what it is given."""

    def __init__(self, inner: Any, names: Mapping[str, Any], seen: Seen) -> None:
        self.inner, self.names, self.seen = inner, names, seen

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self._note(self.names[name], name, args, kwargs)
        return self.inner.call(name, *args, **kwargs)

    def new(self, name: str, *args: Any, **kwargs: Any) -> Any:
        made = self.names[name]
        self._note(made, name, args, kwargs)
        return Recorder(self.inner.new(name, *args, **kwargs), _methods(made), self.seen)

    def get(self, attribute: str) -> Any:
        return self.inner.get(attribute)

    def _note(self, what: Callable[..., Any], name: str, args: Any, kwargs: Any) -> None:
        try:
            given = inspect.signature(what).bind(*args, **kwargs).arguments
        except (TypeError, ValueError):
            given = {str(i): a for i, a in enumerate(args)} | kwargs
        several = len(self.names) > 1
        for key, value in given.items():
            for leaf, part in leaves(f"{name}.{key}" if several else key, value):
                self.seen.setdefault(leaf, Values()).add(part)


def _methods(made: type) -> dict[str, Any]:
    """The methods of a class, each as it is called on an object."""
    found = inspect.getmembers(made, inspect.isfunction)
    return {name: functools.partial(method, None) for name, method in found}


def leaves(name: str, value: Any) -> Iterator[tuple[str, float | str]]:
    """The numbers and words in a value, each with the name of its place."""
    if value is None or isinstance(value, bool | str):
        yield name, str(value)
    elif isinstance(value, int | float):
        yield name, value
    elif isinstance(value, list | tuple):
        yield f"len({name})", len(value)
        for part in value:
            yield from leaves(f"{name}[]", part)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from leaves(f"{name}[{key!r}]", part)
    elif hasattr(value, "shape"):
        yield f"{name}.dtype", str(value.dtype).removeprefix("torch.")
        for i, n in enumerate(value.shape):
            yield f"{name}.shape[{i}]", n
        flat = value.reshape(-1).tolist()
        if flat and isinstance(flat[0], int | float):
            yield name, min(flat)
            yield name, max(flat)
