"""Arrays and tensors as a description and their bytes. numpy and torch are imported only when a
value of theirs is met."""

from __future__ import annotations

import math
import sys
from typing import Any

from twophase.protocol.errors import ProtocolError

DTYPES = (
    "bool",
    "uint8",
    "uint16",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
)
ITEM_BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "uint16": 2,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
}  # others below
ITEM_BYTES |= {"int32": 4, "float32": 4, "int64": 8, "float64": 8}
STRINGS = "UT"  # the kinds of numpy's dtypes that hold them
MAX_AXES = 32
TAGS = ("np", "ns", "pt")  # a numpy array, a numpy scalar, a torch tensor

Described = tuple[dict[str, Any], bytes]


def described(v: Any) -> Described | None:
    """An array's, scalar's or tensor's description and bytes; None for anything else. Raises
    ProtocolError if it may not cross."""
    np, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None and type(v) in (torch.Tensor, torch.nn.Parameter):
        return _torch(torch, v)
    if np is not None and type(v) is np.ndarray:
        return _numpy(np, v, "np")
    if np is not None and isinstance(v, np.generic) and type(v).__module__ == "numpy":
        return _numpy(np, np.asarray(v), "ns")
    return None


def simplified(v: Any) -> Any:
    """A str for an array of one string and no axes (np.select gives one), an int for a scalar of an
    unsigned dtype that is none of ours; any other value as it is."""
    np = sys.modules.get("numpy")
    if np is None:
        return v
    if type(v) is np.ndarray and v.dtype.kind in STRINGS and not v.shape:
        return str(v[()])
    if isinstance(v, np.unsignedinteger) and str(v.dtype) not in DTYPES:
        return int(v)
    return v


def _numpy(np: Any, v: Any, tag: str) -> Described:
    name = str(v.dtype)
    if v.dtype.kind in STRINGS:
        raise ProtocolError(
            "an array of strings cannot be judged; return a str, or a list of str (its .tolist()"
            " gives one)"
        )
    if name not in DTYPES:
        raise ProtocolError(
            f"an array of dtype {name} cannot be judged; use one of {', '.join(DTYPES)}"
        )
    return {"#": tag, "dtype": name, "shape": list(v.shape)}, np.ascontiguousarray(v).tobytes()


def _torch(torch: Any, v: Any) -> Described:
    name = str(v.dtype).removeprefix("torch.")
    if v.layout is not torch.strided or name not in DTYPES or v.is_quantized:
        raise ProtocolError(
            f"a tensor of dtype {name} and layout {v.layout} cannot be judged; return a dense one"
        )
    if v.device.type == "meta":
        raise ProtocolError("a tensor on the meta device has no values; return one that has")
    flat = v.detach().cpu().contiguous()
    if flat.is_neg():
        flat = flat.resolve_neg()
    bits = flat.view(torch.uint16) if name == "bfloat16" else flat
    return {"#": "pt", "dtype": name, "shape": list(v.shape)}, bits.numpy().tobytes()


def restored(j: dict[str, Any], data: memoryview) -> Any:
    """What was described, from its description (one of TAGS) and its bytes. Raises ProtocolError if
    they do not agree."""
    tag, dtype, shape = j["#"], j["dtype"], tuple(j["shape"])
    if (
        dtype not in DTYPES
        or len(shape) > MAX_AXES
        or not all(type(d) is int and d >= 0 for d in shape)
    ):
        raise ProtocolError("the frame has an array of unknown dtype or shape")
    if math.prod(shape) * ITEM_BYTES[dtype] != len(data):
        raise ProtocolError("the frame has an array whose bytes do not fit its shape")
    import numpy as np

    stored = {"bfloat16": "uint16", "bool": "uint8"}.get(dtype, dtype)
    raw = np.frombuffer(data, dtype=stored).reshape(shape).copy()  # as sent
    if dtype == "bool":  # a truth value has one bit, whatever the sender's byte holds
        raw = np.asarray(raw != 0)
    if tag == "pt":
        import torch

        tensor = torch.from_numpy(np.asarray(raw))
        return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor
    return raw[()] if tag == "ns" else raw
