"""Which tensor of the files goes where in a Transformer, checked by name and shape before a weight
is read."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from twophase.models.config import Config
from twophase.models.hugging_face.names import (
    COMPUTED,
    HEAD,
    VISION,
    Place,
    layer_of,
    places,
)
from twophase.models.hugging_face.shards import Stored
from twophase.models.transformer import Transformer

Plan = list[tuple[str, Stored, Place]]


def select(headers: dict[str, Stored], config: Config) -> tuple[dict[str, Stored], list[str]]:
    """The tensors that a text model of this config uses, and a note about each group that is left
    aside."""
    ahead = {
        layer_of(key) for key in headers if key.endswith(".eh_proj.weight")
    }  # what only such layers have
    beyond = {layer for layer in ahead if layer is not None and layer >= config.L}
    groups = {
        "tables of RoPE's angles, which are computed instead": [
            k for k in headers if COMPUTED.fullmatch(k)
        ],
        "the part that sees images: only text is read and written here": [
            k for k in headers if VISION.fullmatch(k)
        ],
        "layers after the last, which predict more than one token ahead (multi-token prediction)": [
            k for k in headers if layer_of(k) in beyond
        ],
    }
    unused = {key for keys in groups.values() for key in keys}
    notes = [
        f"tensors left aside: {len(keys)}, of {what}." for what, keys in groups.items() if keys
    ]
    return {key: stored for key, stored in headers.items() if key not in unused}, notes


def make_plan(
    headers: dict[str, Stored],
    model: Transformer,
    folder: Path,
    layers: Sequence[int] | None = None,
) -> Plan:
    """For each tensor its place in a model, which may have only these `layers` of the files.
    ValueError if one has none or another shape, if two have the same, or one is missing."""
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    if model.config.tied:
        shapes.pop(HEAD)
    plan = [
        (key, stored, renumbered(place, layers))
        for key, stored in headers.items()
        for place in places(key)
    ]
    taken: dict[tuple[str, int | None], str] = {}
    for key, stored, place in plan:
        if place.name not in shapes or (
            place.expert is not None and place.expert >= shapes[place.name][0]
        ):
            raise ValueError(
                f"{stored.file}: {key} has no place in the model that config.json describes."
            )
        wanted = _stored_shape(shapes[place.name], place)
        if stored.shape != wanted:
            raise ValueError(
                f"{stored.file}: {key} is {list(stored.shape)}, but by config.json it must be"
                f" {list(wanted)}."
            )
        for slot in _slots(place, shapes[place.name]):
            if slot in taken:
                raise ValueError(
                    f"{folder}: {taken[slot]} and {key} are the same parameter under two names."
                )
            taken[slot] = key
    for name, shape in shapes.items():
        if absent := [slot for slot in _slots(Place(name), shape) if slot not in taken]:
            expert = f" of expert {absent[0][1]}" if ".experts." in name else ""
            there = stored_name(name, layers)
            raise ValueError(
                f"{folder}: the files do not hold {there}{expert}, which the model in config.json"
                " has."
            )
    return plan


def layers_of(config: Config, layers: Sequence[int]) -> Config:
    """The config of a model that has these layers only, in their order. ValueError unless they are
    layers of this one, each after the one before it."""
    numbers = list(layers)
    if (
        not numbers
        or numbers != sorted(set(numbers))
        or not 0 <= numbers[0] <= numbers[-1] < config.L
    ):
        raise ValueError(
            f"layers must be numbers from 0 to {config.L - 1}, each larger than the one before; got"
            f" {numbers}."
        )
    kinds = config.attention
    if not isinstance(kinds, str):
        kinds = tuple(kinds[number] for number in numbers)
    moe = config.moe
    if moe is not None:
        moe = replace(moe, n_dense_layers=sum(number < moe.n_dense_layers for number in numbers))
    return replace(config, L=len(numbers), attention=kinds, moe=moe)


def renumbered(place: Place, layers: Sequence[int] | None) -> Place:
    """A place in a model that has only these layers of the files."""
    number = layer_of(place.name)
    if layers is None or number is None:
        return place
    rest = place.name.removeprefix(f"layers.{number}.")
    return replace(place, name=f"layers.{list(layers).index(number)}.{rest}")


def stored_name(name: str, layers: Sequence[int] | None) -> str:
    """The other way: a parameter by the number that its layer has in the files."""
    number = layer_of(name)
    if layers is None or number is None:
        return name
    return name.replace(f"layers.{number}.", f"layers.{layers[number]}.", 1)


def _stored_shape(shape: tuple[int, ...], place: Place) -> tuple[int, ...]:
    """The shape that a tensor must have in the file to go to `place` in a parameter of this
    shape."""
    if place.expert is not None:
        return shape[1:]
    return shape if place.half is None else (shape[0], 2 * shape[1], *shape[2:])


def _slots(place: Place, shape: tuple[int, ...]) -> Iterator[tuple[str, int | None]]:
    """What a tensor fills: a parameter, or in a stack of experts one or all of them."""
    if ".experts." not in place.name:
        yield place.name, None
    else:
        yield from (
            (place.name, e) for e in (range(shape[0]) if place.expert is None else (place.expert,))
        )
