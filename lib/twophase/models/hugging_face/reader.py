"""Reads tensors, or boxes cut out of them, from safetensors files into memory of this process.

Files are read, not mapped. A mapped file that another program writes to changes the weights of a
model that runs, and one that is cut off kills the process; read weights are what they were. That
costs 0.6 s of processor time a GB, once (measured on 1 GB of bf16). A box is read run by run, each
a stretch of bytes that lie together, so nothing else of a tensor is read.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import BinaryIO

import torch

from twophase.models.hugging_face.shards import DTYPES, Stored, read_headers, stamp_of

Box = tuple[tuple[int, int], ...]  # start and stop of every axis
Slice = tuple[int, int, int]  # axis, start, stop


def read_tensors(folder: Path | str, wanted: Mapping[str, Slice | None]) -> dict[str, torch.Tensor]:
    """The named tensors of a Hugging Face directory, each whole (None) or `(axis, start, stop)` of
    it, in the dtype they are stored in.

    Nothing else of the files is read, but their headers. Raises ValueError if a tensor is not
    there, a slice does not lie in it, or a file is damaged.
    """
    headers = read_headers(Path(folder))
    for key in wanted:
        if key not in headers:
            raise ValueError(f"{folder} holds no tensor {key!r}.")
    with Reader() as reader:
        return {
            key: reader.read(key, headers[key], box_of(headers[key].shape, part))
            for key, part in wanted.items()
        }


def box_of(shape: tuple[int, ...], *parts: Slice | None) -> Box:
    """The whole of a tensor, or what lies in all the slices of it, one for an axis. ValueError if
    a slice does not lie in it."""
    box = [(0, n) for n in shape]
    for part in parts:
        if part is None:
            continue
        axis, start, stop = part
        if not 0 <= axis < len(shape) or not 0 <= start < stop <= shape[axis]:
            raise ValueError(
                f"there is no slice (axis, start, stop) = {part} of a tensor of shape"
                f" {list(shape)}."
            )
        box[axis] = (start, stop)
    return tuple(box)


def box_shape(box: Box) -> tuple[int, ...]:
    """The shape of what lies in a box."""
    return tuple(stop - start for start, stop in box)


def runs(shape: tuple[int, ...], box: Box) -> Iterator[tuple[int, int]]:
    """Where the numbers of a box lie in a tensor of this shape: first number and how many, of every
    stretch that lies together."""
    cut = [axis for axis, n in enumerate(shape) if box[axis] != (0, n)]
    last = cut[-1] if cut else 0  # from here on the box is as wide as the tensor
    steps = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    for index in product(*(range(*bounds) for bounds in box[:last])):
        first = sum(i * step for i, step in zip(index, steps, strict=False))
        if not shape:
            yield 0, 1
        else:
            start, stop = box[last]
            yield first + start * steps[last], (stop - start) * steps[last]


class Reader:
    """Reads tensors by their place, one file open at a time."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._file: BinaryIO | None = None

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def read(self, key: str, stored: Stored, box: Box) -> torch.Tensor:
        """A box of a tensor, in the dtype it is stored in, in memory of its own."""
        target = torch.empty(box_shape(box), dtype=DTYPES[stored.dtype])
        self.read_into(target, key, stored, box)
        return target

    def read_into(self, target: torch.Tensor, key: str, stored: Stored, box: Box) -> None:
        """Put a box of a tensor into `target`, of the box's shape, any dtype and device; without a
        second copy where that is possible."""
        if (
            target.device.type != "cpu"
            or target.dtype != DTYPES[stored.dtype]
            or not target.is_contiguous()
        ):
            target.copy_(self.read(key, stored, box))
            return
        if not target.numel():
            return
        memory = target.view(-1).view(torch.uint8).numpy().data  # [bytes]
        file, size, done = self._open(stored), target.element_size(), 0
        for first, count in runs(stored.shape, box):
            file.seek(stored.offset + first * size)
            end = done + count * size
            while done < end:
                if not (more := file.readinto(memory[done:end])):  # type: ignore[attr-defined]
                    raise ValueError(f"{stored.file} was cut off while {key} was read.")
                done += more

    def _open(self, stored: Stored) -> BinaryIO:
        """The file of a tensor, if it still is the one whose header was checked."""
        if stored.file != self._path or self._file is None:
            self.close()
            self._file, self._path = stored.file.open("rb", buffering=0), stored.file
        if stamp_of(self._file.fileno()) != stored.stamp:
            raise ValueError(
                f"{stored.file} has changed since its header was read: another program writes to"
                " it; load again when that is over."
            )
        return self._file

    def close(self) -> None:
        """Close the file that is open."""
        if self._file is not None:
            self._file.close()
        self._file, self._path = None, None
