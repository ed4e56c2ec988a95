"""A case with the keys of its dicts the other way round: an exercise names its keys, and promises
no order of them, so an answer that unpacks `model.values()` is right by luck."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twophase.checks.exercise import Case


def in_other_order(case: Case) -> Case:
    """The case with every dict of named fields reversed, however deep in lists, tuples and dicts;
    the very case where there is none."""
    args = _reversed(case.args)
    kwargs = {name: _reversed(value) for name, value in case.kwargs.items()}
    same = args is case.args and all(kwargs[k] is v for k, v in case.kwargs.items())
    return case if same else replace(case, args=args, kwargs=kwargs)


def _reversed(value: Any) -> Any:
    """`value` with its dicts reversed; itself where nothing in it is one."""
    kind = type(value)
    if kind in (list, tuple):
        parts = [_reversed(part) for part in value]
        same = all(part is old for part, old in zip(parts, value, strict=True))
        return value if same else kind(parts)
    if kind is dict:
        fields = {key: _reversed(part) for key, part in value.items()}
        if len(fields) > 1 and all(type(key) is str and key.isidentifier() for key in fields):
            return dict(reversed(fields.items()))
        return value if all(fields[key] is part for key, part in value.items()) else fields
    return value
