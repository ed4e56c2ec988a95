"""From the tensors of the files to a Transformer: first everything is checked by name and shape,
then it is filled."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from twophase.models.config import Config
from twophase.models.hugging_face.names import (
    COMPUTED,
    EMBEDDING,
    HEAD,
    VISION,
    Place,
    layer_of,
    places,
)
from twophase.models.hugging_face.shards import DTYPES, Reader, Stored
from twophase.models.transformer import Transformer

Progress = Callable[[int, int], None]  # bytes so far, bytes in all
Plan = list[tuple[str, Stored, Place]]
ROUTER_BIAS = (  # always fp32, as DeepSeek keeps it: it decides between nearly equal experts
    "e_score_correction_bias"
)


class WithoutInitialization(TorchFunctionMode):
    """What is made in here keeps whatever is in its memory: drawing weights that are replaced would
    be for nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def blank(config: Config) -> Transformer:
    """A Transformer whose parameters have shapes and no memory."""
    with torch.device("meta"), WithoutInitialization():
        return Transformer(config).eval().requires_grad_(False)


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


def make_plan(headers: dict[str, Stored], model: Transformer, folder: Path) -> Plan:
    """For each tensor its place. ValueError if one has none or another shape, if two have the same,
    or one is missing."""
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    if model.config.tied:
        shapes.pop(HEAD)
    plan = [(key, stored, place) for key, stored in headers.items() for place in places(key)]
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
            raise ValueError(
                f"{folder}: the files do not hold {name}{expert}, which the model in config.json"
                " has."
            )
    return plan


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


def fill(
    model: Transformer,
    plan: Plan,
    dtype: torch.dtype,
    device: torch.device,
    progress: Progress | None = None,
) -> None:
    """Give a blank model its weights: views of the mapped files where they can be used as they are,
    else copies."""
    views, copies = Reader(), Reader()
    total, done = sum(stored.nbytes for _, stored, _ in plan), 0
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    state: dict[str, torch.Tensor] = {}
    for key, stored, place in sorted(plan, key=lambda entry: (entry[1].file, entry[0])):
        wanted = torch.float32 if place.name.endswith(ROUTER_BIAS) else dtype
        as_it_is = (
            place == Place(place.name) and DTYPES[stored.dtype] == wanted and device.type == "cpu"
        )
        if as_it_is:
            state[place.name] = views.view(key, stored)
        else:
            if place.name not in state:
                state[place.name] = torch.empty(shapes[place.name], dtype=wanted, device=device)
            target = state[place.name] if place.expert is None else state[place.name][place.expert]
            copies.copy_into(target, key, stored, place.half)
        if progress:
            if as_it_is:
                touch(state[place.name])
            done += stored.nbytes if place.half is None else stored.nbytes // 2
            progress(done, total)
    if model.config.tied:
        state[HEAD] = state[EMBEDDING]
    model.load_state_dict(state, assign=True)
    if model.config.tied:
        model.lm_head.weight = model.embed_tokens.weight
    model.requires_grad_(False)


def touch(tensor: torch.Tensor) -> None:
    """Read a byte of every page, so that the file is read now and not in the first step."""
    if tensor.numel():
        tensor.view(torch.uint8).flatten()[::4096].sum()  # [pages]


def without_second_head(
    headers: dict[str, Stored], config: Config, folder: Path
) -> dict[str, Stored]:
    """The tensors without an output matrix that is stored although config.json ties it to the
    embedding.

    ValueError if the two differ: releases of transformers disagree about which of them then counts.
    """
    stored = {places(key)[0].name: key for key in headers}
    if not config.tied or HEAD not in stored or EMBEDDING not in stored:
        return headers
    head, embedding = (
        Reader().view(stored[name], headers[stored[name]]) for name in (HEAD, EMBEDDING)
    )
    if not torch.equal(head, embedding):
        raise ValueError(
            f"{folder}: config.json ties the output matrix to the embedding (tie_word_embeddings),"
            f" but the files hold another {HEAD}: set it to false there if the files are right."
        )
    return {key: value for key, value in headers.items() if key != stored[HEAD]}
