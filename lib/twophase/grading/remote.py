"""An answer in another process, with the interface of one in this process. The judge cannot tell the difference.

Arguments go out as frames; functions among them stay here and are called back; what comes back is plain data or a
reference to an object that stays there. Whatever else comes back is an AnswerError of kind `protocol`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from twophase.grading.session import GraderFault, Session
from twophase.protocol import AnswerError, Callback, ObjectRef, ProtocolError, decode, encode
from twophase.protocol import wire as w
from twophase.protocol.errors import JudgeFault, error_from

FROM_WORKER = ("missing", "not_yet", "raised", "not_plain")  # the other kinds are ours to say


class RemoteHandle:
    """An object of the answer in the worker."""

    def __init__(self, answer: RemoteAnswer, reference: ObjectRef) -> None:
        self._answer = answer
        self.reference = reference

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._answer.ask(w.METHOD, (self.reference, method), method, args, kwargs)

    def get(self, attribute: str) -> Any:
        return self._answer.ask(w.GET, (self.reference, attribute), attribute, (), {})


class RemoteAnswer:
    """The answer that the cells of `session` have defined."""

    def __init__(self, session: Session, turn: threading.Lock | None = None) -> None:
        self._session = session
        self._turn = turn  # held by whoever runs a check, except while it waits for the worker
        self._callbacks: dict[int, Callable[..., Any]] = {}
        self._given = 0  # callbacks so far: a number is never used again
        self._limit_s = session.limits.submission_s
        self._until = time.monotonic() + self._limit_s
        self._deadline = self._until

    def start_exercise(self, limit_s: float) -> None:
        """All cases together have `limit_s` from now on."""
        self._until = time.monotonic() + limit_s

    def start_case(self, limit_s: float) -> None:
        """The case that begins has `limit_s`, callbacks included."""
        self._limit_s = limit_s
        self._deadline = min(self._until, time.monotonic() + limit_s)
        self._callbacks.clear()

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self.ask(w.CALL, name, name, args, kwargs)

    def new(self, name: str, *args: Any, **kwargs: Any) -> RemoteHandle:
        reference = self.ask(w.NEW, name, name, args, kwargs)
        return RemoteHandle(self, reference)

    def ask(self, kind: bytes, target: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """One question and its answer. Raises AnswerError."""
        body = w.pack_call(
            target, [encode(self._out(a)) for a in args], {k: encode(self._out(v)) for k, v in kwargs.items()}
        )
        late = f"{name} took longer than {self._limit_s:g} s"
        got, reply = self._session.converse(kind, body, self._deadline, late, self._serve, self._turn)
        try:
            return self._read(kind, got, reply)
        except ProtocolError as e:
            raise self._session.fail("protocol", f"Its process sent nonsense: {e}") from None

    def _read(self, asked: bytes, got: bytes, reply: bytes) -> Any:
        if got == w.ERROR:
            kind, message, names = w.unpack_error(reply)
            if kind not in FROM_WORKER:
                raise ProtocolError("an error of a kind that is not the worker's to say")
            raise AnswerError(kind, message, names)
        if asked == w.NEW and got == w.OBJECT:
            reference = decode(reply)
            if type(reference) is ObjectRef:
                return reference
        if asked != w.NEW and got == w.VALUE:
            return decode(reply, plain=True)
        raise ProtocolError("an answer of another kind than was asked for")

    def _out(self, value: Any) -> Any:
        """An argument as it crosses: functions become callbacks, handles the objects that they stand for."""
        if isinstance(value, RemoteHandle):
            return value.reference
        if callable(value):
            self._given += 1
            self._callbacks[self._given] = value
            return Callback(self._given)
        if type(value) in (list, tuple):
            return type(value)(self._out(v) for v in value)
        if type(value) is dict:
            return {k: self._out(v) for k, v in value.items()}
        return value

    def _serve(self, body: bytes) -> tuple[bytes, bytes]:
        """Run a callback for the worker. What the check's function raises goes back as an exception of the same name."""
        number, args, kwargs = w.unpack_call(body, plain=True)
        function = self._callbacks.get(number) if type(number) is int else None
        if function is None:
            raise ProtocolError("it called a function that it was not given")
        try:
            value = function(*args, **kwargs)
        except JudgeFault:
            raise
        except Exception as e:
            if self._session.broken is not None:
                raise self._session.broken from None
            said = error_from(e)
            text = str(e)[:2000] if said.kind == "raised" else said.message
            return w.RAISE, w.pack_error(said.kind, text, said.type_names)
        try:
            return w.RETURN, encode(value)
        except ProtocolError as e:
            raise GraderFault(f"a callback of the check returned what cannot cross: {e}") from None
