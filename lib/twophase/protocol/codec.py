"""Plain values to bytes and back: tagged JSON for the structure, raw buffers for arrays. Never a
pickle.

A frame is a 4-byte big-endian header length, the header (JSON, UTF-8), then the array buffers one
after another. A frame may hold several values, the parts of a call: the limits on depth and number
are then those of each of them. What can cross: None, bool, int, float (NaN and infinities too),
str, bytes; list, tuple, dict, set of these; numpy arrays and scalars; dense torch tensors (bfloat16
travels as its bits); a `Callback` (a function that lives on the sender's side); an `ObjectRef` (an
object that lives on the receiver's). Types are exact, so that an object "equal to everything" never
reaches a comparison: what is of a class derived from tuple, str or int (a named tuple, an
enumeration's member) arrives as a plain one, and one derived from float, list or dict is refused.

The JSON and struct functions are bound when this module is loaded, so that a notebook which patches
those libraries afterwards does not change what its own values become.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twophase.protocol.arrays import TAGS, described, restored, simplified
from twophase.protocol.errors import ProtocolError
from twophase.protocol.parts import MAX_INT_BITS, WORDS, Walk, plainly
from twophase.protocol.refusals import refusal

MAX_FRAME_BYTES = 64 * 2**20
MAX_HEADER_BYTES = 8 * 2**20  # the JSON part; a longer list belongs into an array

_LENGTH = struct.Struct(">I")

# what the standard library offers in place of a list or a dict; it arrives as one
LISTS = (list, range, deque)
DICTS = (dict, OrderedDict, defaultdict, Counter)


@dataclass(frozen=True)
class Callback:
    """A function that stays on the sender's side; the other side calls it by number. What it
    returns belongs to the sender, if it `lends`."""

    id: int
    lends: bool = False


@dataclass(frozen=True)
class ObjectRef:
    """An object that stays in the notebook's process; the judge calls its methods by number."""

    id: int


Reference = Callback | ObjectRef


class _Encoder(Walk):
    """Values as JSON and buffers. `stand_in` gives a reference for what is no plain data, or
    None."""

    def __init__(self, stand_in: Callable[[Any], Reference | None] | None = None) -> None:
        super().__init__()
        self.stand_in = stand_in
        self.buffers: list[bytes] = []
        self.size = 0

    def value(self, v: Any, depth: int = 0) -> Any:
        self.count(1, depth)
        kind = type(v)
        if kind in WORDS:
            return v
        if kind is int:
            if v.bit_length() > MAX_INT_BITS:
                raise ProtocolError(
                    f"the integer has more than {MAX_INT_BITS} bits; return a number of ordinary"
                    " size"
                )
            return v
        if kind is float:
            return v if math.isfinite(v) else {"#": "f", "v": repr(v)}
        if kind in LISTS:
            return self.parts(v, depth)
        if kind is tuple:
            return {"#": "t", "v": self.parts(v, depth)}
        if kind in (set, frozenset):
            return {"#": "s", "v": [self.value(self.keys.check(x), depth + 1) for x in v]}
        if kind in DICTS:
            return self._dict(v, depth)
        if kind is bytes:
            return {"#": "b", "n": self._buffer(v)}
        if kind is Callback:
            return {"#": "l" if v.lends else "c", "id": v.id}
        if kind is ObjectRef:
            return {"#": "o", "id": v.id}
        return self._other(v, depth)

    def _dict(self, v: Any, depth: int) -> Any:
        if set(map(type, v)) == {str}:
            self.count(len(v), depth + 1)
            return {"#": "m", "v": dict(zip(v, self.parts(v.values(), depth), strict=True))}
        pairs = [
            [self.value(self.keys.check(a), depth + 1), self.value(b, depth + 1)]
            for a, b in v.items()
        ]
        return {"#": "d", "v": pairs}

    def _other(self, v: Any, depth: int) -> Any:
        plain = simplified(plainly(v))
        if plain is not v:
            self.nodes -= 1  # it counts itself
            return self.value(plain, depth)
        array = described(v)
        if array is not None:
            return array[0] | {"n": self._buffer(array[1])}
        reference = self.stand_in(v) if self.stand_in else None
        if reference is not None:
            return self.value(reference, depth)
        raise ProtocolError(refusal(v))

    def _buffer(self, data: bytes) -> int:
        self.size += len(data)
        if self.size > MAX_FRAME_BYTES:
            raise ProtocolError(
                f"the value is larger than {MAX_FRAME_BYTES // 2**20} MiB; return less"
            )
        self.buffers.append(data)
        return len(data)


def encode(value: Any) -> bytes:
    """`value` as one frame. Raises ProtocolError, with a sentence, for whatever is not plain
    data."""
    encoder = _Encoder()
    return _framed(encoder, encoder.value, value)


def encode_each(
    values: Sequence[Any], stand_in: Callable[[Any], Reference | None] | None = None
) -> bytes:
    """Several values as one frame. Functions and objects for which `stand_in` gives a reference
    cross as that."""
    encoder = _Encoder(stand_in)
    return _framed(encoder, encoder.each, list(values))


def _framed(encoder: _Encoder, walk: Callable[[Any], Any], value: Any) -> bytes:
    try:
        header = _dumps(walk(value)).encode("utf-8", "surrogatepass")
    except RecursionError:
        raise ProtocolError("the value is nested too deeply; return plain data") from None
    except ProtocolError:
        raise
    except Exception as e:  # a list that changes while it is read, a tensor whose memory is gone
        raise ProtocolError(
            f"the value cannot be read ({type(e).__name__}); return plain data"
        ) from None
    if len(header) > MAX_HEADER_BYTES:
        raise ProtocolError("the value has too many parts; return an array instead of a long list")
    if len(header) + encoder.size > MAX_FRAME_BYTES:
        raise ProtocolError(f"the value is larger than {MAX_FRAME_BYTES // 2**20} MiB; return less")
    return _LENGTH.pack(len(header)) + header + b"".join(encoder.buffers)


class _Decoder(Walk):
    """JSON and buffers as values. References are refused if `plain`, else given to `refer`, if
    there is one."""

    def __init__(
        self, body: memoryview, plain: bool, refer: Callable[[Reference], Any] | None
    ) -> None:
        super().__init__()
        self.body = body
        self.plain = plain
        self.refer = refer
        self.at = 0

    def value(self, j: Any, depth: int = 0) -> Any:
        self.count(1, depth)
        kind = type(j)
        if kind in WORDS or kind is float:
            return j
        if kind is int:
            if j.bit_length() > MAX_INT_BITS:
                raise ProtocolError(f"the frame has an integer of more than {MAX_INT_BITS} bits")
            return j
        return self.parts(j, depth) if kind is list else self._tagged(j, depth)

    def _tagged(self, j: dict[str, Any], depth: int) -> Any:
        tag = j.get("#")
        if tag in TAGS:
            return restored(j, self._take(j["n"]))
        if tag == "m" and type(j["v"]) is dict:
            self.count(len(j["v"]), depth + 1)
            return dict(zip(j["v"], self.parts(j["v"].values(), depth), strict=True))
        if tag == "f" and j["v"] in ("nan", "inf", "-inf"):
            return float(j["v"])
        if tag == "t":
            return tuple(self.parts(j["v"], depth))
        if tag == "s":
            return {self.keys.check(self.value(x, depth + 1)) for x in j["v"]}
        if tag == "d":
            return {
                self.keys.check(self.value(a, depth + 1)): self.value(b, depth + 1)
                for a, b in j["v"]
            }
        if tag == "b":
            return bytes(self._take(j["n"]))
        if tag in ("c", "l", "o") and type(j["id"]) is int and not self.plain:
            reference = ObjectRef(j["id"]) if tag == "o" else Callback(j["id"], tag == "l")
            return self.refer(reference) if self.refer else reference
        raise ProtocolError(f"the frame has an unknown tag {str(tag)[:20]!r}")

    def _take(self, n: Any) -> memoryview:
        if type(n) is not int or n < 0 or self.at + n > len(self.body):
            raise ProtocolError("the frame's buffers are shorter than its header says")
        self.at += n
        return self.body[self.at - n : self.at]


def decode(frame: bytes, plain: bool = False) -> Any:
    """The value that `encode` was given. Raises ProtocolError, and nothing else, on any bytes.

    With `plain` a frame that holds a Callback or an ObjectRef is refused: what an answer returns
    has neither.
    """
    return _unframed(frame, plain, None, _Decoder.value)


def decode_each(
    frame: bytes, plain: bool = False, refer: Callable[[Reference], Any] | None = None
) -> list[Any]:
    """The values that `encode_each` was given; in place of a reference, what `refer` makes of it.
    Raises ProtocolError only."""
    values: list[Any] = _unframed(frame, plain, refer, _Decoder.each)
    return values


def _unframed(
    frame: bytes,
    plain: bool,
    refer: Callable[[Reference], Any] | None,
    walk: Callable[[_Decoder, Any], Any],
) -> Any:
    try:
        if not 4 <= len(frame) <= MAX_FRAME_BYTES + 4:
            raise ProtocolError("the frame is empty or too long")
        (n,) = _LENGTH.unpack(frame[:4])
        if 4 + n > len(frame) or n > MAX_HEADER_BYTES:
            raise ProtocolError(
                "the frame's header is longer than the frame, or than a header may be"
            )
        header = _loads(bytes(frame[4 : 4 + n]).decode("utf-8", "surrogatepass"))
        decoder = _Decoder(memoryview(frame)[4 + n :], plain, refer)
        value = walk(decoder, header)
        if decoder.at != len(decoder.body):
            raise ProtocolError("the frame has bytes that belong to nothing")
        return value
    except ProtocolError:
        raise
    except (
        Exception
    ) as e:  # JSON errors, wrong types in tags, recursion: all are one thing to the judge
        raise ProtocolError(f"the frame cannot be read ({type(e).__name__})") from None


def _no_constant(name: str) -> Any:
    raise ProtocolError(f"the frame holds a bare {name}")


_dumps = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":")).encode
_loads = json.JSONDecoder(parse_constant=_no_constant).decode


def roundtrip(value: Any) -> Any:
    """`value` as the other side would see it: a deep copy in plain types. Raises ProtocolError if
    it could not cross."""
    return decode(encode(value))
