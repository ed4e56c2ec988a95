"""Reading a YAML file strictly: every value is text until its field says what it is, and every
mistake is a sentence with its place. Pydantic finds them; here they become sentences."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

T = TypeVar("T")
OPTIONAL = (Union, UnionType)
KEY = " from above"
FROM_ABOVE = Field(alias=KEY)  # what a mapping does not say itself: the key that it stands under
Value = Any  # str, list or dict of these

TAGS = {
    yaml.ScalarNode: yaml.resolver.BaseResolver.DEFAULT_SCALAR_TAG,
    yaml.SequenceNode: yaml.resolver.BaseResolver.DEFAULT_SEQUENCE_TAG,
    yaml.MappingNode: yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG,
}


class _Loader(yaml.SafeLoader):
    """Scalars stay text, so that 0123 is no octal number, 23:59 no sexagesimal one and `no` no
    truth value, whatever tag stands before them. No key twice."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node.tag != TAGS[type(node)]:
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            raise _at(node, f"a tag such as {tag} means nothing here; write the value without it")
        return super().construct_object(node, deep)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _at(key, "a key is not plain text")
            if not key.value.strip():
                raise _at(key, "a key is empty; write a name before the colon")
            if key.value == KEY:
                raise _at(key, f"there is no such key as {key.value!r}")
            if key.value in seen:
                raise _at(key, f"{key.value!r} is there twice")
            seen.add(key.value)
        return super().construct_mapping(node, deep=True)


def _at(node: yaml.Node, says: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=says, problem_mark=node.start_mark)


def read_yaml(path: Path) -> Value:
    """The file as text, lists and mappings. Raises ValueError."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except OSError as e:
        raise ValueError(f"{path} cannot be read ({e.strerror})") from None
    try:
        return yaml.load(text, _Loader) or {}  # a SafeLoader
    except yaml.MarkedYAMLError as e:
        line = f", line {e.problem_mark.line + 1}" if e.problem_mark else ""
        raise ValueError(f"{path}{line}: {e.problem}") from None
    except (yaml.YAMLError, RecursionError) as e:
        raise ValueError(f"{path} is no YAML file ({str(e).splitlines()[0]})") from None


def nearest(wrong: str, known: Iterable[str], most: int = 10_000) -> str:
    """`; did you mean 'due'?`, or the list of what there is, if it has no more than `most`."""
    names = sorted(known)
    near = difflib.get_close_matches(wrong, names, 1, 0.5)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known here: {', '.join(names)}" if 0 < len(names) <= most else ""


def absent(what: str, name: str, known: Iterable[str]) -> str:
    """`there is no column 'duee'; did you mean 'due'?`"""
    return f"there is no {what} {name!r}{nearest(name, known)}"


class Mistake(ValueError):
    """Something wrong with the key `at` of the mapping that was read."""

    def __init__(self, says: str, at: str) -> None:
        super().__init__(says)
        self.at = at


def read(kind: type[T], path: Path, given: dict[str, Any] | None = None) -> T:
    """What a YAML file says, as `kind`, a dataclass or a mapping of such; `given` is what its
    validators need to know. Raises ValueError with a line, and the place, for every mistake."""
    try:
        return TypeAdapter(kind).validate_python(read_yaml(path), context=given)
    except ValidationError as e:
        mistakes = [_sentence(error, kind) for error in e.errors(include_url=False)]
    raise ValueError("\n".join(f"{path}: {m}" for m in mistakes))


def _sentence(error: ErrorDetails, kind: Any) -> str:
    """One mistake: where it is, what is wrong, what was expected."""
    cause = error.get("ctx", {}).get("error")
    places = [*error["loc"], *([cause.at] if isinstance(cause, Mistake) else [])]
    where = "".join(f"[{p + 1}]" if isinstance(p, int) else f".{p}" for p in places if p != KEY)
    return ": ".join(filter(None, (where.removeprefix("."), _says(error, kind))))


def _says(error: ErrorDetails, kind: Any) -> str:
    value, how = error["input"], error["type"]
    if how == "missing":
        return "is missing"
    if how == "unexpected_keyword_argument":
        *above, key = error["loc"]
        return f"there is no such key{nearest(str(key), _keys(kind, above))}"
    if how in ("dataclass_type", "dict_type"):
        return f"expected `key: value` lines, found {shown(value)}"
    if how in ("is_instance_of", "sequence_str"):
        return f"expected a list of `- key: value` lines, found {shown(value)}"
    if how == "literal_error":
        choices = error["ctx"]["expected"].replace("'", "").replace(" or ", ", ")
        return f"{shown(value)} is not one of {choices}"
    return str(error.get("ctx", {}).get("error", error["msg"]))


def _keys(kind: Any, place: Sequence[int | str]) -> list[str]:
    """The keys that the mapping at this place may have."""
    for step in place:
        kind = get_type_hints(kind)[str(step)] if is_dataclass(kind) else get_args(kind)[-1]
        kind = get_args(kind)[0] if get_origin(kind) in OPTIONAL else kind  # of `X | None`, X
    return keys_of(kind)


def keys_of(kind: Any) -> list[str]:
    """The keys that a mapping of this kind may have."""
    hints = get_type_hints(kind, include_extras=True)
    return [name for name, hint in hints.items() if FROM_ABOVE not in get_args(hint)]


def shown(value: Value) -> str:
    if isinstance(value, list):
        return "a list"
    return "a mapping" if isinstance(value, dict) else repr(str(value)[:60])


def entries(value: Value, above: Callable[[str], dict[str, Any]], short: str = "") -> Value:
    """The entries of a mapping, each with what it has from above unless it says so itself. One
    that is no mapping is what its key `short` is."""
    if value == "":
        return {}
    if not isinstance(value, dict):
        return value
    whole = {key: shorthand(short)(said) for key, said in value.items()}
    return {k: above(k) | said if isinstance(said, dict) else said for k, said in whole.items()}


def shorthand(short: str) -> Callable[[Value], Value]:
    """A mapping, of which nothing or only its key `short` may be written."""
    return lambda said: (
        {} if said == "" else {short: said} if short and not isinstance(said, dict) else said
    )


MAPPING = BeforeValidator(shorthand(""))
