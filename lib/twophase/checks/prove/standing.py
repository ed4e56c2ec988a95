"""Wrong answers that every exercise must reject, made from its reference: they keep something from
one call to the next, change what they are given, or hand out what they go on using."""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from twophase.checks.answer import LocalAnswer
from twophase.checks.judge import Bench

RETURNED: deque[str] = deque(maxlen=20)  # what the right answer returned of late
Names = dict[str, Any]
Made = Callable[..., Any]  # a function or a class that an answer defines
Note = Callable[[], None]  # called when an answer does something else than the right one
Wrap = Callable[[Made, Note], Made | None]  # None if nothing of this kind can go wrong so


def standing(bench: Bench) -> str:
    """One sentence for the first of these answers that does something wrong and is accepted, or
    "". Where nothing can be wrong (numbers cannot be changed in place) nothing is asked."""
    for called, names, did in wrong_answers(bench):
        if bench.judge(LocalAnswer(names), whole=False).right and did:
            return f"{bench.exercise.id} accepts an answer that {called} (seed {bench.seed})"
    return ""


def wrong_answers(bench: Bench) -> Iterator[tuple[str, Names, list[bool]]]:
    """(what it does, the names that it defines, whether it did so by now) of each wrong answer, for
    each entry that it can be made of."""
    right = bench.exercise.namespace(bench.exercise.reference)
    right = {entry: _recorded(made) for entry, made in right.items()}
    for entry in bench.exercise.entries:
        for called, wrap in WRONG.items():
            did: list[bool] = []
            wrong = wrap(right[entry], lambda did=did: did.append(True))  # type: ignore[misc]
            if wrong is not None:
                yield f"{called} ({entry})", right | {entry: wrong}, did


def _recorded(made: Made) -> Made:
    if inspect.isclass(made):
        return made

    @functools.wraps(made)
    def call(*args: Any, **kwargs: Any) -> Any:
        value = made(*args, **kwargs)
        RETURNED.append(repr(value))
        return value

    return call


def spoiled(value: Any) -> Any:
    """Something else of the same kind."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, str):
        return value + "!"
    if isinstance(value, list | tuple):
        return type(value)(map(spoiled, value)) if value else type(value)([0])
    if isinstance(value, dict):
        return {k: spoiled(v) for k, v in value.items()}
    return -value - 1


def at_calls(wrong: Callable[[int], bool]) -> Wrap:
    """Wrong at the calls, or in the objects, that `wrong` says, counted from 0."""

    def wrap(made: Made, note: Note) -> Made:
        calls = 0

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            value = made(*args, **kwargs)
            if not wrong(calls - 1):
                return value
            note()
            return _Spoiled(value) if inspect.isclass(made) else spoiled(value)

        return call

    return wrap


class _Spoiled:
    """An object whose methods return something else."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found):
            return spoiled(found)
        return lambda *args, **kwargs: spoiled(found(*args, **kwargs))


def remembers(made: Made, note: Note) -> Made:
    """Everything is in a global: the first result is there for ever, all objects share theirs."""
    if not inspect.isclass(made):
        kept: list[Any] = []

        def call(*args: Any, **kwargs: Any) -> Any:
            value = made(*args, **kwargs)
            kept.append(value)
            if repr(value) != repr(kept[0]):
                note()
            return kept[0]

        return call

    state: Names = {}

    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        note()
        self.__dict__ = state
        made.__init__(self, *args, **kwargs)

    return type(made.__name__, (made,), {"__init__": begin})


def adds_up(made: Made, note: Note) -> Made | None:
    """What was returned before comes along: the list was made outside of the function."""
    if inspect.isclass(made) or not inspect.signature(made).parameters:
        return None
    before: list[Any] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        value = made(*args, **kwargs)
        if not isinstance(value, list):
            return value
        if before:
            note()
        before.extend(value)
        return list(before)

    return call


def changes_arguments(made: Made, note: Note) -> Made:
    """It works in what it was given."""
    if inspect.isclass(made):
        methods = inspect.getmembers(made, inspect.isfunction)
        own = {n: _in_place(m, note) for n, m in methods if not n.startswith("_")}
        return type(made.__name__, (made,), own)
    return _in_place(made, note)


def _in_place(function: Made, note: Note) -> Made:
    def call(*args: Any, **kwargs: Any) -> Any:
        value = function(*args, **kwargs)
        for given in (*args, *kwargs.values()):
            own = repr(given) in RETURNED  # a state that it made itself, it may change
            if _change(given) and not own:
                note()
        return value

    return call


def _change(given: Any) -> bool:
    """Change one place of a container, as an assignment to it would."""
    if isinstance(given, list) and given:
        given.append(given.pop(0))
        return len(given) > 1
    if isinstance(given, dict) and given:
        given["seen"] = True
        return True
    if hasattr(given, "shape") and 0 not in given.shape:
        given += 1
        return True
    return False


def one_object(made: Made, note: Note) -> Made | None:
    """Every result is put into the same list, dict or array."""
    if inspect.isclass(made):
        return None
    shared: dict[type, Any] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        value = made(*args, **kwargs)
        if type(value) not in (list, dict):
            return value
        one = shared.setdefault(type(value), type(value)())
        if one and one != value:
            note()
        one.clear()
        (one.extend if isinstance(one, list) else one.update)(value)
        return one

    return call


WRONG: dict[str, Wrap] = {
    "is wrong the first time": at_calls(lambda n: n == 0),
    "is right only the first time": at_calls(lambda n: n > 0),
    "counts its calls and is wrong from the third on": at_calls(lambda n: n > 1),
    "keeps its first result in a global": remembers,
    "adds to what it returned before": adds_up,
    "changes its arguments": changes_arguments,
    "returns the same object every time": one_object,
}
