"""Counts, and the parts of a run they are kept for."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from .traffic import Access, Footprint, access_bytes, storage_ref


@dataclass
class Count:
    """FLOPs and bytes of some operators. One multiply-add is 2 FLOPs."""

    calls: int = 0
    matmul_flops: int = 0
    other_flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def flops(self) -> int:
        """All FLOPs: those of matrix products and the others."""
        return self.matmul_flops + self.other_flops

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float:
        """FLOPs per byte, all FLOPs counted. NaN if no byte moved."""
        return self.flops / self.bytes if self.bytes else float("nan")

    @property
    def matmul_intensity(self) -> float:
        """FLOPs of matrix products per byte: what the theory's intensities are. NaN if no byte
        moved."""
        return self.matmul_flops / self.bytes if self.bytes else float("nan")

    def include(self, other: Count) -> None:
        """Add another count to this one."""
        self.calls += other.calls
        self.matmul_flops += other.matmul_flops
        self.other_flops += other.other_flops
        self.bytes_read += other.bytes_read
        self.bytes_written += other.bytes_written


@dataclass
class Region:
    """A named stretch of a run. A fused one moves only what enters it from outside and what leaves
    it.

    Entering: elements of storages that existed before the region, each counted once however often
    they are read. Leaving: elements written into such storages (a cache), and tensors made inside
    that no operator inside consumed. A tensor that was consumed inside and is read again later left
    too: the meter adds it when it sees that.
    """

    name: str
    fused: bool = False
    count: Count = field(default_factory=Count)
    inside: dict[int, Footprint] = field(default_factory=dict)
    read: dict[int, Footprint] = field(default_factory=dict)
    written: dict[int, Footprint] = field(default_factory=dict)
    unread: set[int] = field(default_factory=set)

    def out(self, tensor: torch.Tensor) -> torch.Tensor:
        """Say that a tensor leaves the region although an operator inside consumed it too."""
        ref = storage_ref(tensor)
        if ref.cdata in self.inside:
            self._touch(self.written, ref.cdata, tensor)
            self.unread.discard(ref.cdata)
        return tensor

    def born(self, tensor: torch.Tensor) -> None:
        """A storage that an operator inside allocated."""
        ref = storage_ref(tensor)
        if ref.cdata not in self.read and ref.cdata not in self.written:
            self.inside.setdefault(ref.cdata, Footprint(ref))

    def observe_read(self, access: Access) -> None:
        """An operator inside reads this."""
        name = storage_ref(access).cdata
        if name in self.inside:
            self.unread.discard(name)
        else:
            self._touch(self.read, name, access)

    def observe_write(self, access: Access) -> None:
        """An operator inside writes this."""
        name = storage_ref(access).cdata
        if name in self.inside:
            self.inside[name].add(access)
            self.unread.add(name)
        else:
            self._touch(self.written, name, access)

    @staticmethod
    def _touch(group: dict[int, Footprint], name: int, access: Access) -> None:
        if name not in group:
            group[name] = Footprint(storage_ref(access))
        group[name].add(access)

    def traffic(self) -> tuple[int, int]:
        """Bytes that entered and bytes that left."""
        left = sum(self.inside[name].bytes for name in self.unread if name not in self.written)
        left += sum(footprint.bytes for footprint in self.written.values())
        return sum(footprint.bytes for footprint in self.read.values()), left

    def hidden(self) -> dict[int, Footprint]:
        """Storages made and consumed inside, so far thought never to have left."""
        return {
            n: f for n, f in self.inside.items() if n not in self.unread and n not in self.written
        }


def plain_traffic(reads: list[Access], writes: list[Access]) -> tuple[int, int]:
    """Bytes of one unfused operator."""
    return sum(map(access_bytes, reads)), sum(map(access_bytes, writes))
