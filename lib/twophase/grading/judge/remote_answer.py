"""An answer in another process, with the interface of one in this process. The judge cannot tell
the difference.

Arguments go out as frames; functions among them stay here and are called back; what comes back is
plain data or a reference to an object that stays there. Whatever else comes back is an AnswerError
of kind `protocol`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from twophase.checks.answer import Asked
from twophase.grading.judge.check_limit import Alarm, Overdue
from twophase.grading.sandbox.session import Session
from twophase.protocol import AnswerError, Callback, ObjectRef, ProtocolError, decode, encode
from twophase.protocol import wire as w
from twophase.protocol.arguments import lends
from twophase.protocol.codec import Reference
from twophase.protocol.errors import JudgeFault, error_from

# the other kinds are ours to say
FROM_WORKER = "missing", "not_yet", "raised", "not_plain", "unusable"
MAX_CALLBACKS = 100_000  # in one case; a check may keep a log of them
# that a worker may send in one case, returned and in callbacks together
MAX_CASE_BYTES = 256 * 2**20
MAX_NESTING = 30  # calls within callbacks within calls

T = TypeVar("T")


class RemoteHandle:
    """An object of the answer in the worker."""

    def __init__(self, answer: RemoteAnswer, reference: ObjectRef) -> None:
        self._answer = answer
        self.reference = reference

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._answer.ask(w.METHOD, (self.reference, method), method, args, kwargs)

    def get(self, attribute: str) -> Any:
        return self._answer.ask(w.GET, (self.reference, attribute), attribute, (), {})

    def each(self, *asked: Asked) -> list[Any]:
        """Several things in one message: see `twophase.checks.answer.each`."""
        names = dict.fromkeys(one if isinstance(one, str) else one[0] for one in asked)
        found: list[Any] = self._answer.ask(w.EACH, self.reference, " and ".join(names), asked, {})
        return found


class RemoteAnswer:
    """The answer that the cells of `session` have defined. All of its exercise ends at `until`, a
    time of `time.monotonic()`. If it is `handed` what another process of it returned, it may change
    that, as it may what it returned itself."""

    def __init__(self, session: Session, until: float = math.inf, handed: bool = False) -> None:
        self._session = session
        self._call = w.HANDED if handed else w.CALL
        self._alarm = Alarm()
        self._callbacks: dict[int, Callable[..., Any]] = {}
        self._given = 0  # callbacks so far: a number is never used again
        self._nesting = 0
        self.interrupted = False  # the check's own code was, at some point that nobody chose
        self._most = until
        self.start_exercise(session.limits.submission_s)
        self.start_case(session.limits.submission_s)

    def start_exercise(self, limit_s: float) -> None:
        """All cases together have `limit_s` from now on."""
        self._began = time.monotonic()
        self._until = min(self._most, self._began + limit_s)
        self.elapsed_s = self.waited_s = 0.0  # until the last case was over
        self._session.waited.begin()

    def start_case(self, limit_s: float) -> None:
        """The case that begins has `limit_s`, callbacks included."""
        self._limit_s = limit_s
        self._deadline = min(self._until, time.monotonic() + limit_s)
        self._callbacks.clear()
        self._served = self._bytes = 0

    def within(self, check: Callable[[], T]) -> T:
        """check(), in which waiting for the worker has a limit and computing on what it sent has
        another as long.

        Raises AnswerError (timeout) when the second is reached; the session is broken then.
        """
        own_s = min(self._limit_s, max(0.1, self._until - time.monotonic()))
        try:
            with self._alarm.limit(own_s):
                return check()
        except Overdue:
            self.interrupted = True
            said = (
                "Checking what your answer returned, or called back with, took longer than"
                f" {own_s:.3g} s"
            )
            raise self._session.fail("timeout", said) from None
        finally:
            self.elapsed_s = time.monotonic() - self._began
            self.waited_s = self._session.waited.grace_s()

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self.ask(self._call, name, name, args, kwargs)

    def new(self, name: str, *args: Any, **kwargs: Any) -> RemoteHandle:
        reference = self.ask(w.NEW, name, name, args, kwargs)
        return RemoteHandle(self, reference)

    def ask(
        self, kind: bytes, target: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """One question and its answer. Raises AnswerError."""
        with self._alarm.held():
            if self._nesting >= MAX_NESTING:
                raise self._session.fail(
                    "timeout", f"{name} was called within callbacks {MAX_NESTING} deep"
                )
            self._nesting += 1
            try:
                return self._ask(kind, target, name, args, kwargs)
            finally:
                self._nesting -= 1

    def _ask(
        self, kind: bytes, target: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        body = w.pack_call(target, args, kwargs, self._reference)
        late = f"{name} took longer than {self._limit_s:g} s"
        if self._deadline == self._until:
            whole_s = self._until - self._began
            late = f"{name} took longer than was left of {whole_s:.3g} s for all cases together"
        got, reply = self._session.converse(kind, body, self._deadline, late, self._serve)
        self._weigh(reply)
        try:
            return self._read(kind, got, reply, len(args))
        except ProtocolError as e:
            raise self._session.fail("protocol", f"Its process sent nonsense: {e}") from None

    def _weigh(self, body: bytes) -> None:
        self._bytes += len(body)
        if self._bytes > MAX_CASE_BYTES:
            raise self._session.fail(
                "timeout", f"It sent more than {MAX_CASE_BYTES // 2**20} MiB in one case"
            )

    def _read(self, asked: bytes, got: bytes, reply: bytes, n: int) -> Any:
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
            value = decode(reply, plain=True)
            return _each(value, n) if asked == w.EACH else value
        raise ProtocolError("an answer of another kind than was asked for")

    def _reference(self, value: Any) -> Reference | None:
        """What crosses in place of an argument that does not: for a function a callback, for a
        handle its object."""
        if isinstance(value, RemoteHandle):
            return value.reference
        if not callable(value):
            return None
        self._given += 1
        self._callbacks[self._given] = value
        return Callback(self._given, lends(value))

    def _serve(self, body: bytes) -> tuple[bytes, bytes]:
        """Run a callback for the worker. What the check's function raises goes back as an exception
        of the same name."""
        self._weigh(body)
        self._served += 1
        if self._served > MAX_CALLBACKS:
            raise self._session.fail(
                "timeout", f"It called back more than {MAX_CALLBACKS} times in one case"
            )
        number, args, kwargs = w.unpack_call(body, plain=True)
        function = self._callbacks.get(number) if type(number) is int else None
        if function is None:
            raise ProtocolError("it called a function that it was not given in this case")
        try:
            with self._alarm.released():
                value = function(*args, **kwargs)
            return w.RETURN, encode(value)
        except JudgeFault:
            raise
        # as in the notebook's own process: also if what was returned cannot cross
        except Exception as e:
            if self._session.broken is not None:
                raise self._session.broken from None
            said = error_from(e)
            text = (
                said.message.removeprefix(f"{type(e).__name__}: ")
                if said.kind == "raised"
                else said.message
            )
            return w.RAISE, w.pack_error(said.kind, text, said.type_names)


def _each(frames: Any, n: int) -> list[Any]:
    """The values of `n` frames. Raises ProtocolError if they are anything else."""
    if type(frames) is not list or len(frames) != n or not {*map(type, frames)} <= {bytes}:
        raise ProtocolError(f"{n} answers were asked for, each a frame, and something else came")
    return [decode(frame, plain=True) for frame in frames]
