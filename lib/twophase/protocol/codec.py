"""Plain values to bytes and back: tagged JSON for the structure, raw buffers for arrays. Never a pickle.

A frame is a 4-byte big-endian header length, the header (JSON, UTF-8), then the array buffers one after another.
What can cross: None, bool, int, float (NaN and infinities too), str, bytes; list, tuple, dict, set of these; numpy
arrays and scalars; dense torch tensors (bfloat16 travels as its bits); a `Callback` (a function that lives on the
sender's side); an `ObjectRef` (an object that lives on the receiver's). Types are exact: a subclass of float or str is
refused, so that an object "equal to everything" never reaches a comparison.

numpy and torch are imported only when a value of theirs is met. The JSON and struct functions are bound when this module
is loaded, so that a notebook which patches those libraries afterwards does not change what its own values become.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from typing import Any

MAX_FRAME_BYTES = 64 * 2**20
MAX_HEADER_BYTES = 8 * 2**20  # the JSON part; a longer list belongs into an array
MAX_DEPTH = 32
MAX_NODES = 500_000
MAX_INT_BITS = 4096
MAX_KEY = 2**60  # integers beyond it could be chosen to collide in a hash table
MAX_TUPLE_KEYS = 2_000  # tuples of ordinary numbers can be chosen so too, and each then meets all others
DTYPES = ("bool", "uint8", "uint16", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16")
ITEM_BYTES = {"bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2}  # others below
ITEM_BYTES |= {"int32": 4, "float32": 4, "int64": 8, "float64": 8}

_LENGTH = struct.Struct(">I")


# what the standard library offers in place of a list or a dict; it arrives as one
LISTS = (list, range, deque)
DICTS = (dict, OrderedDict, defaultdict, Counter)


class ProtocolError(Exception):
    """A value that may not cross, or bytes that are no frame. The message is one sentence for a person."""


@dataclass(frozen=True)
class Callback:
    """A function that stays on the sender's side; the other side calls it by number."""

    id: int


@dataclass(frozen=True)
class ObjectRef:
    """An object that stays in the notebook's process; the judge calls its methods by number."""

    id: int


class _Encoder:
    def __init__(self) -> None:
        self.buffers: list[bytes] = []
        self.size = 0
        self.nodes = 0
        self.keys = _Keys()

    def value(self, v: Any, depth: int = 0) -> Any:
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise ProtocolError(
                "the value is nested too deeply or has too many parts; return plain data of modest size"
            )
        kind = type(v)
        if v is None or kind in (bool, str):
            return v
        if kind is int:
            if v.bit_length() > MAX_INT_BITS:
                raise ProtocolError(f"the integer has more than {MAX_INT_BITS} bits; return a number of ordinary size")
            return v
        if kind is float:
            return v if math.isfinite(v) else {"#": "f", "v": repr(v)}
        if kind in LISTS:
            return [self.value(x, depth + 1) for x in v]
        if kind is tuple:
            return {"#": "t", "v": [self.value(x, depth + 1) for x in v]}
        if kind in (set, frozenset):
            return {"#": "s", "v": [self.value(self.keys.check(x), depth + 1) for x in v]}
        if kind in DICTS:
            pairs = [[self.value(self.keys.check(a), depth + 1), self.value(b, depth + 1)] for a, b in v.items()]
            return {"#": "d", "v": pairs}
        if kind is bytes:
            return {"#": "b", "n": self._buffer(v)}
        if kind in (Callback, ObjectRef):
            return {"#": "c" if kind is Callback else "o", "id": v.id}
        return self._array(v)

    def _array(self, v: Any) -> Any:
        np, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if np is not None and type(v) is np.ndarray:
            return self._numpy(np, v, "np")
        if np is not None and type(v) is np.str_:
            return str(v)
        if np is not None and isinstance(v, np.generic) and type(v).__module__ == "numpy":
            return self._numpy(np, np.asarray(v), "ns")
        if torch is not None and type(v) in (torch.Tensor, torch.nn.Parameter):
            return self._torch(torch, v)
        raise ProtocolError(
            f"a value of type {type(v).__name__} is not plain data; return numbers, strings, lists, dicts, arrays or tensors"
        )

    def _numpy(self, np: Any, v: Any, tag: str) -> Any:
        name = str(v.dtype)
        if name not in DTYPES:
            raise ProtocolError(f"an array of dtype {name} cannot be judged; use one of {', '.join(DTYPES)}")
        n = self._buffer(np.ascontiguousarray(v).tobytes())
        return {"#": tag, "dtype": name, "shape": list(v.shape), "n": n}

    def _torch(self, torch: Any, v: Any) -> Any:
        name = str(v.dtype).removeprefix("torch.")
        if v.layout is not torch.strided or name not in DTYPES or v.is_quantized:
            raise ProtocolError(f"a tensor of dtype {name} and layout {v.layout} cannot be judged; return a dense one")
        if v.device.type == "meta":
            raise ProtocolError("a tensor on the meta device has no values; return one that has")
        flat = v.detach().cpu().contiguous()
        if flat.is_neg():
            flat = flat.resolve_neg()
        bits = flat.view(torch.uint16) if name == "bfloat16" else flat
        return {"#": "pt", "dtype": name, "shape": list(v.shape), "n": self._buffer(bits.numpy().tobytes())}

    def _buffer(self, data: bytes) -> int:
        self.size += len(data)
        if self.size > MAX_FRAME_BYTES:
            raise ProtocolError(f"the value is larger than {MAX_FRAME_BYTES // 2**20} MiB; return less")
        self.buffers.append(data)
        return len(data)


class _Keys:
    """The dict keys and set members of one frame: none of a kind, or in a number, that makes a hash table slow."""

    def __init__(self) -> None:
        self.tuples = 0

    def check(self, key: Any) -> Any:
        """`key`, if it may cross."""
        if type(key) is tuple:
            self.tuples += 1
            if self.tuples > MAX_TUPLE_KEYS:
                raise ProtocolError(
                    f"more than {MAX_TUPLE_KEYS} keys of dicts or sets are tuples; use a list or an array"
                )
            return tuple(self.check(k) for k in key)
        if type(key) is int and not -MAX_KEY < key < MAX_KEY:
            raise ProtocolError("a dict has an enormous integer as a key; use ordinary numbers or strings")
        if key is None or type(key) in (bool, int, float, str, bytes):
            return key
        raise ProtocolError(
            f"a dict or set has a key of type {type(key).__name__}; use strings, numbers or tuples of them"
        )


def encode(value: Any) -> bytes:
    """`value` as one frame. Raises ProtocolError, with a sentence, for whatever is not plain data."""
    encoder = _Encoder()
    try:
        header = _dumps(encoder.value(value)).encode("utf-8", "surrogatepass")
    except RecursionError:
        raise ProtocolError("the value is nested too deeply; return plain data") from None
    except ProtocolError:
        raise
    except Exception as e:  # a list that changes while it is read, a tensor whose memory is gone
        raise ProtocolError(f"the value cannot be read ({type(e).__name__}); return plain data") from None
    if len(header) > MAX_HEADER_BYTES:
        raise ProtocolError("the value has too many parts; return an array instead of a long list")
    if len(header) + encoder.size > MAX_FRAME_BYTES:
        raise ProtocolError(f"the value is larger than {MAX_FRAME_BYTES // 2**20} MiB; return less")
    return _LENGTH.pack(len(header)) + header + b"".join(encoder.buffers)


class _Decoder:
    def __init__(self, body: memoryview, plain: bool) -> None:
        self.body = body
        self.plain = plain
        self.at = 0
        self.nodes = 0
        self.keys = _Keys()

    def value(self, j: Any, depth: int = 0) -> Any:
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise ProtocolError("the frame is nested too deeply or has too many parts")
        if type(j) is int and j.bit_length() > MAX_INT_BITS:
            raise ProtocolError(f"the frame has an integer of more than {MAX_INT_BITS} bits")
        if j is None or isinstance(j, bool | int | float | str):
            return j
        if isinstance(j, list):
            return [self.value(x, depth + 1) for x in j]
        tag = j.get("#")
        if tag == "f" and j["v"] in ("nan", "inf", "-inf"):
            return float(j["v"])
        if tag == "t":
            return tuple(self.value(x, depth + 1) for x in j["v"])
        if tag == "s":
            return {self.keys.check(self.value(x, depth + 1)) for x in j["v"]}
        if tag == "d":
            return {self.keys.check(self.value(a, depth + 1)): self.value(b, depth + 1) for a, b in j["v"]}
        if tag == "b":
            return bytes(self._take(j["n"]))
        if tag in ("c", "o") and type(j["id"]) is int and not self.plain:
            return Callback(j["id"]) if tag == "c" else ObjectRef(j["id"])
        if tag in ("np", "ns", "pt"):
            return self._array(tag, j)
        raise ProtocolError(f"the frame has an unknown tag {str(tag)[:20]!r}")

    def _take(self, n: Any) -> memoryview:
        if type(n) is not int or n < 0 or self.at + n > len(self.body):
            raise ProtocolError("the frame's buffers are shorter than its header says")
        self.at += n
        return self.body[self.at - n : self.at]

    def _array(self, tag: str, j: dict[str, Any]) -> Any:
        dtype, shape = j["dtype"], tuple(j["shape"])
        if dtype not in DTYPES or len(shape) > MAX_DEPTH or not all(type(d) is int and d >= 0 for d in shape):
            raise ProtocolError("the frame has an array of unknown dtype or shape")
        data = self._take(j["n"])
        if math.prod(shape) * ITEM_BYTES[dtype] != len(data):
            raise ProtocolError("the frame has an array whose bytes do not fit its shape")
        import numpy as np

        stored = {"bfloat16": "uint16", "bool": "uint8"}.get(dtype, dtype)
        raw = np.frombuffer(data, dtype=stored).reshape(shape).copy()  # shape
        if dtype == "bool":  # a truth value has one bit, whatever the sender's byte holds
            raw = np.asarray(raw != 0)
        if tag == "pt":
            import torch

            tensor = torch.from_numpy(np.asarray(raw))
            return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor
        return raw[()] if tag == "ns" else raw


def decode(frame: bytes, plain: bool = False) -> Any:
    """The value that `encode` was given. Raises ProtocolError, and nothing else, on any bytes.

    With `plain` a frame that holds a Callback or an ObjectRef is refused: what an answer returns has neither.
    """
    try:
        if not 4 <= len(frame) <= MAX_FRAME_BYTES + 4:
            raise ProtocolError("the frame is empty or too long")
        (n,) = _LENGTH.unpack(frame[:4])
        if 4 + n > len(frame) or n > MAX_HEADER_BYTES:
            raise ProtocolError("the frame's header is longer than the frame, or than a header may be")
        header = _loads(bytes(frame[4 : 4 + n]).decode("utf-8", "surrogatepass"))
        decoder = _Decoder(memoryview(frame)[4 + n :], plain)
        value = decoder.value(header)
        if decoder.at != len(decoder.body):
            raise ProtocolError("the frame has bytes that belong to nothing")
        return value
    except ProtocolError:
        raise
    except Exception as e:  # JSON errors, wrong types in tags, recursion: all are one thing to the judge
        raise ProtocolError(f"the frame cannot be read ({type(e).__name__})") from None


def _no_constant(name: str) -> Any:
    raise ProtocolError(f"the frame holds a bare {name}")


_dumps = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":")).encode
_loads = json.JSONDecoder(parse_constant=_no_constant).decode


def roundtrip(value: Any) -> Any:
    """`value` as the other side would see it: a deep copy in plain types. Raises ProtocolError if it could not cross."""
    return decode(encode(value))
