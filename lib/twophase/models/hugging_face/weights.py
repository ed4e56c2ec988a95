"""From the tensors of the files to the parameters of a Transformer, by a plan that was checked
before."""

from collections.abc import Callable
from pathlib import Path

import torch

from twophase.models.config import Config
from twophase.models.hugging_face.names import EMBEDDING, HEAD, Place, places
from twophase.models.hugging_face.plan import Plan
from twophase.models.hugging_face.reader import Box, Reader, Slice, box_of, box_shape
from twophase.models.hugging_face.shards import DTYPES, Stored
from twophase.models.transformer import Transformer

Progress = Callable[[int, int], None]  # bytes so far, bytes in all
PIECE_BYTES = 64_000_000  # of two matrices that are compared
ROUTER_BIAS = (  # always fp32, as DeepSeek keeps it: it decides between nearly equal experts
    "e_score_correction_bias"
)


def fill(
    model: Transformer,
    plan: Plan,
    dtype: torch.dtype,
    device: torch.device,
    progress: Progress | None = None,
) -> None:
    """Give a blank model its weights, read from the files into memory of their own, and none of
    them NaN or infinite (ValueError names it)."""
    state: dict[str, torch.Tensor] = {}
    total, done = sum(stored.nbytes for _, stored, _ in plan), 0
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    with Reader() as reader:
        for key, stored, place in sorted(plan, key=lambda entry: (entry[1].file, entry[0])):
            if place.name not in state:
                kind = torch.float32 if place.name.endswith(ROUTER_BIAS) else dtype
                state[place.name] = torch.empty(shapes[place.name], dtype=kind, device=device)
            target = state[place.name] if place.expert is None else state[place.name][place.expert]
            box = file_box(place, stored, box_of(tuple(target.shape)))
            reader.read_into(target, key, stored, box)
            check_finite(target, key, stored)
            if progress:
                done += stored.nbytes if place.half is None else stored.nbytes // 2
                progress(done, total)
    if model.config.tied:
        state[HEAD] = state[EMBEDDING]
    model.load_state_dict(state, assign=True)
    if model.config.tied:
        model.lm_head.weight = model.embed_tokens.weight
    model.requires_grad_(False)


def read_parameter(
    plan: Plan, name: str, shape: tuple[int, ...], *parts: Slice | None
) -> torch.Tensor:
    """A parameter of ours, or `(axis, start, stop)` of it, one for an axis, from the tensors that
    hold it: experts that are stored one by one are stacked, and those outside are not read."""
    box = box_of(shape, *parts)
    entries = [entry for entry in plan if entry[2].name == name]
    found = torch.empty(box_shape(box), dtype=DTYPES[entries[0][1].dtype])
    with Reader() as reader:
        for key, stored, place in entries:
            target, inner = found, box
            if place.expert is not None:
                first, stop = box[0]
                if not first <= place.expert < stop:
                    continue
                target, inner = found[place.expert - first], box[1:]
            reader.read_into(target, key, stored, file_box(place, stored, inner))
            check_finite(target, key, stored)
    return found


def file_box(place: Place, stored: Stored, box: Box) -> Box:
    """Where a box of what goes to `place` lies in the tensor, half of which may be another's."""
    if place.half is None:
        return box
    before = place.half * stored.shape[1] // 2
    return box[0], (box[1][0] + before, box[1][1] + before), *box[2:]


def check_finite(weights: torch.Tensor, key: str, stored: Stored) -> None:
    """ValueError if there is a NaN or an infinity among weights: every logit would be NaN.

    One pass over memory that was just written: a tenth of the time of reading it.
    """
    if weights.numel() and not all(bound.isfinite() for bound in torch.aminmax(weights)):
        raise ValueError(
            f"{stored.file}: {key} holds NaN or infinity as"
            f" {str(weights.dtype).removeprefix('torch.')}: the file is damaged, or the dtype too"
            " narrow for it."
        )


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
    if not _equal(*((stored[name], headers[stored[name]]) for name in (HEAD, EMBEDDING))):
        raise ValueError(
            f"{folder}: config.json ties the output matrix to the embedding (tie_word_embeddings),"
            f" but the files hold another {HEAD}: set it to false there if the files are right."
        )
    return {key: value for key, value in headers.items() if key != stored[HEAD]}


def _equal(one: tuple[str, Stored], other: tuple[str, Stored]) -> bool:
    """Whether two stored matrices are the same, read a few rows at a time."""
    if (one[1].shape, one[1].dtype) != (other[1].shape, other[1].dtype):
        return False
    rows = one[1].shape[0]
    step = max(PIECE_BYTES * rows // max(one[1].nbytes, 1), 1)
    with Reader() as reader:
        for first in range(0, rows, step):
            box = box_of(one[1].shape, (0, first, min(first + step, rows)))
            if not torch.equal(reader.read(*one, box), reader.read(*other, box)):
                return False
    return True
