"""Which bytes of memory an operator touches, counted by element, so that views, slices and
broadcasts cost what they are.

Convention: an operator reads every element of every operand once and writes every element of its
result once. A broadcast (stride 0) dimension costs one element however far it is expanded; a slice
costs its own elements, not its storage's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef


class Part(NamedTuple):
    """`n_bytes` of a tensor, where an operator touches only some of its elements, as a lookup in a
    table does."""

    tensor: torch.Tensor
    n_bytes: int


Access = torch.Tensor | Part
Layout = tuple[int, tuple[tuple[int, int], ...]]


def layout(tensor: torch.Tensor) -> Layout:
    """Where the elements of a tensor lie in its storage: (offset, ((stride, size), ...)), the same
    for a view and its transpose."""
    dims = zip(tensor.stride(), tensor.shape, strict=True)
    kept = tuple(
        sorted((int(stride), int(size)) for stride, size in dims if size != 1 and stride != 0)
    )
    return int(tensor.storage_offset()), kept


def _elements(where: Layout) -> int:
    """How many distinct elements a layout touches; overlapping windows (`unfold`) count each
    element once."""
    _, dims = where
    product, span, nested = 1, 1, True
    for stride, size in dims:
        nested = nested and stride >= span
        product *= size
        span += stride * (size - 1)
    if nested or product == 0:
        return product
    return _mark([where])


def _mark(places: list[Layout]) -> int:
    """Distinct elements touched by several layouts of one storage, by marking them."""
    end = max(
        offset + sum(stride * (size - 1) for stride, size in dims) + 1 for offset, dims in places
    )
    start = min(offset for offset, _ in places)
    touched = torch.zeros(end - start, dtype=torch.bool)
    for offset, dims in places:
        sizes, strides = [size for _, size in dims], [stride for stride, _ in dims]
        touched.as_strided(sizes, strides, offset - start).fill_(True)
    return int(touched.sum())


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Bytes of memory behind a tensor: distinct elements times the size of one.

    >>> tensor_bytes(torch.zeros(3, 1, dtype=torch.bfloat16).expand(3, 1000))
    6
    """
    if tensor.numel() == 0:
        return 0
    return _elements(layout(tensor)) * tensor.element_size()


def access_bytes(access: Access) -> int:
    """Bytes touched by one access."""
    return access.n_bytes if isinstance(access, Part) else tensor_bytes(access)


def distinct(accesses: list[Access]) -> list[Access]:
    """Drop operands given twice: `x * x` reads x once."""
    seen: set[tuple[int, Layout]] = set()
    kept: list[Access] = []
    for access in accesses:
        if isinstance(access, Part):
            kept.append(access)
            continue
        key = (storage_ref(access).cdata, layout(access))
        if key not in seen:
            seen.add(key)
            kept.append(access)
    return kept


def storage_ref(access: Access) -> StorageWeakRef:
    """A weak reference that names the storage; while it is held the name (`cdata`) is not given to
    another storage."""
    tensor = access.tensor if isinstance(access, Part) else access
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


@dataclass
class Footprint:
    """The union of all that was touched in one storage."""

    ref: StorageWeakRef
    element_size: int = 1
    storage_bytes: int = 0
    places: set[Layout] = field(default_factory=set)
    part_bytes: int = 0

    def add(self, access: Access) -> None:
        """Touch a tensor, or part of one."""
        tensor = access.tensor if isinstance(access, Part) else access
        self.element_size = tensor.element_size()
        self.storage_bytes = tensor.untyped_storage().nbytes()
        if isinstance(access, Part):
            self.part_bytes += access.n_bytes
        elif tensor.numel():
            self.places.add(layout(tensor))

    @property
    def bytes(self) -> int:
        """Distinct bytes touched; parts are added and capped at the storage, since which elements
        they hit is unknown."""
        if not self.places:
            return min(self.part_bytes, self.storage_bytes)
        places = list(self.places)
        whole = _elements(places[0]) if len(places) == 1 else _mark(places)
        return min(whole * self.element_size + self.part_bytes, self.storage_bytes)
