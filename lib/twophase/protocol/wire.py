"""Messages between the judge and the official worker, over a stream socket.

A message is a 4-byte big-endian length, one letter for its kind, the 8-byte id of the conversation
that it belongs to, and a body, which is one frame of the codec.

The judge asks (RUN, CALL, HANDED, NEW, METHOD, GET, EACH) and the worker answers with exactly one
of VALUE, OBJECT, ERROR or RAN in the same conversation. Before that it may ask back (CALLBACK),
which the judge answers with RETURN or RAISE; while the worker waits for these the judge may ask
again, with a new id. Anything else is a ProtocolError.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twophase.protocol.codec import (
    MAX_FRAME_BYTES,
    Reference,
    decode,
    decode_each,
    encode,
    encode_each,
)
from twophase.protocol.errors import ProtocolError

RUN, CALL, NEW, METHOD, GET = b"R", b"C", b"N", b"M", b"G"  # the judge asks
HANDED = b"H"  # a call with what another process of the same answer returned, and may change
EACH = b"A"  # several calls and attributes of one object; the value is a list of frames
RAN, VALUE, OBJECT, ERROR, CALLBACK = (
    b"r",
    b"V",
    b"O",
    b"E",
    b"B",
)  # the worker answers, or asks back
RETURN, RAISE = b"T", b"X"  # the judge answers a callback

HEAD = struct.Struct(">IcQ")
MAX_BODY = MAX_FRAME_BYTES + 2**20
TICK_S = 0.02  # seconds
CHUNK, MAX_CHUNK = 2**16, 2**20  # bytes asked for at a time; of what is sent never more than CHUNK

Message = tuple[bytes, int, bytes]  # kind, conversation, body


class Closed(Exception):
    """The other side has gone."""


class Channel:
    """One end of the conversation. `deadline` is a time of `time.monotonic()`; None waits as long
    as it takes.

    One system call waits for what comes, no longer than TICK_S: then the deadline is looked at. An
    end that is `patient` has no deadlines.
    """

    def __init__(self, end: socket.socket, patient: bool = False) -> None:
        end.setblocking(True)
        for option in () if patient else (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            end.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", 0, int(TICK_S * 1e6)))
        self._end = end
        self._peek = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)  # once: flags are slow to combine
        self.grace: Callable[[], float] = lambda: (
            0.0
        )  # seconds that a deadline is put off, asked once it is over
        self._early = bytearray()  # received, and belonging to the next message

    def send(
        self, kind: bytes, conversation: int, body: bytes, deadline: float | None = None
    ) -> None:
        """Send one message. Raises TimeoutError, Closed, or ProtocolError if it is too large."""
        if len(body) > MAX_BODY:
            raise ProtocolError(f"a message is larger than {MAX_BODY // 2**20} MiB")
        left = memoryview(HEAD.pack(len(body), kind, conversation) + body)
        while left:
            try:
                left = left[self._end.send(left[:CHUNK]) :]
            except BlockingIOError:
                pass
            except OSError as e:
                raise Closed(str(e)) from None
            if left:  # reading a byte at a time is no way to have all the time
                self._require_time(deadline)

    def receive(self, deadline: float | None = None) -> Message:
        """The next message. Raises TimeoutError, Closed, or ProtocolError if it says that it is too
        large."""
        length, kind, conversation = HEAD.unpack(self._read(HEAD.size, deadline))
        if length > MAX_BODY:
            raise ProtocolError("a message says that it is larger than any may be")
        return kind, conversation, self._read(length, deadline)

    def pending(self) -> bool:
        """Whether there is something to read, or the other side has gone: nobody asked for
        anything."""
        if self._early:
            return True
        try:
            self._end.recv(1, self._peek)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        self._end.close()

    def _require_time(self, deadline: float | None) -> None:
        """Raises TimeoutError if the deadline is over, put off by what `grace` gives."""
        if deadline is not None:
            late = time.monotonic() - deadline
            if late >= 0 and late >= self.grace():
                raise TimeoutError

    def _read(self, n: int, deadline: float | None) -> bytes:
        """The next `n` bytes. What comes with them is kept, never more than CHUNK."""
        while len(self._early) < n:
            try:
                got = self._end.recv(max(CHUNK, min(n - len(self._early), MAX_CHUNK)))
            except BlockingIOError:
                got = None
            except OSError as e:
                raise Closed(str(e)) from None
            if got == b"":
                raise Closed("the other side has closed the channel")
            self._early += got or b""
            self._require_time(deadline)  # nor is sending one
        found = bytes(self._early[:n])
        del self._early[:n]
        return found


def pack_call(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    stand_in: Callable[[Any], Reference | None] | None = None,
) -> bytes:
    """A call: its target (a name, an object and a method, a callback's id) and its arguments.
    Raises ProtocolError.

    `stand_in` gives a reference for what stays here.
    """
    return encode_each([target, list(kwargs), *args, *kwargs.values()], stand_in)


def unpack_call(
    body: bytes, plain: bool = False, refer: Callable[[Reference], Any] | None = None
) -> tuple[Any, list[Any], dict[str, Any]]:
    """The target, arguments and keyword arguments of a call, with what `refer` gives for
    references. Raises ProtocolError."""
    call = decode_each(body, plain, refer)
    if len(call) < 2 or type(call[1]) is not list:
        raise ProtocolError("a call has another shape than it should")
    target, names, *args = call
    if len(names) > len(args) or not all(type(k) is str for k in names):
        raise ProtocolError("a call has arguments without a name, or names without one")
    first = len(args) - len(names)
    return target, args[:first], dict(zip(names, args[first:], strict=True))


def pack_error(kind: str, message: str, type_names: Sequence[str]) -> bytes:
    """An AnswerError, or an exception that a callback raised."""
    return encode((kind[:20], message[:2000], tuple(n[:100] for n in type_names[:20])))


def unpack_error(body: bytes) -> tuple[str, str, tuple[str, ...]]:
    """kind, message, type names. Raises ProtocolError."""
    error = decode(body, plain=True)
    if not (
        type(error) is tuple and len(error) == 3 and type(error[2]) is tuple and len(error[2]) <= 20
    ):
        raise ProtocolError("an error has another shape than it should")
    kind, message, names = error
    if not all(type(x) is str and len(x) <= 2000 for x in (kind, message, *names)):
        raise ProtocolError("an error has another shape than it should")
    return kind, message, names
