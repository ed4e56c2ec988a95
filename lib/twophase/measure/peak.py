"""The most memory that tensors made inside a block held at one time: the activations of a forward
pass.

    with PeakBytes() as p, torch.inference_mode():
        model(tokens)
    p.peak_bytes

Counts the storages that torch operators create, from the moment they exist until nothing refers to
them. What was there before (weights, a cache) is not counted, nor is a kernel's private workspace.
Works on the meta device too, where a model of any size runs without memory; attention is taken for
the CPU's fused kernel there, since torch's stand-in would store the scores.
"""

from __future__ import annotations

from typing import Any

from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from .formulas import tensors
from .meta_attention import fused_attention, is_attention_on_meta
from .meter import _is_composite


class PeakBytes(TorchDispatchMode):
    """A context manager; `peak_bytes` is the peak so far, `live_bytes` what is still held."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak_bytes = 0
        self._given: dict[
            int, StorageWeakRef
        ] = {}  # a reference held keeps its number from being used again
        self._made: dict[int, tuple[StorageWeakRef, int]] = {}

    @property
    def live_bytes(self) -> int:
        """Bytes of the tensors made inside that still exist."""
        for name, (ref, _) in list(self._made.items()):
            if ref.expired():  # type: ignore[no-untyped-call]
                del self._made[name]
        return sum(size for _, size in self._made.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_attention_on_meta(func, args):
            with self:
                return fused_attention(*args, **kwargs)
        if _is_composite(
            func
        ):  # under inference_mode linear, reshape and attention arrive whole: look inside
            with self:
                return func.decompose(*args, **kwargs)
        for tensor in tensors([args, kwargs]):
            ref = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
            if ref.cdata not in self._made:
                self._given[ref.cdata] = ref
        out = func(*args, **kwargs)
        for tensor in tensors(out):
            ref = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
            if ref.cdata not in self._given:
                self._made[ref.cdata] = (ref, tensor.untyped_storage().nbytes())
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return out
