"""The judge's side of one submission's process: run its cells, ask its answers, kill it."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from twophase.grading.sandbox.limits import Limits
from twophase.protocol import AnswerError, ProtocolError, decode, encode
from twophase.protocol import wire as w
from twophase.protocol.waited import Waited

REPORTED = "error", "types", "output", "checked"
MOST_CHECKED = 100  # ids: no notebook has so many exercises


@dataclass(frozen=True)
class CellRun:
    """What running a cell gave: the exception that ended it, if any, what it printed, and the ids
    with which it called `check`."""

    error: str = ""
    types: tuple[str, ...] = ()
    output: str = ""
    checked: tuple[str, ...] = ()


class Session(AbstractContextManager["Session"]):
    """One process of one submission. `broken` is why it can no longer be used, once it cannot."""

    def __init__(
        self, end: Callable[[bool], int], channel: w.Channel, limits: Limits, pid: int
    ) -> None:
        # kills the process; given whether it died first, returns the signal that ended it
        self._end = end
        self._channel = channel
        self.waited = Waited(pid)  # for a processor: deadlines are put off by that time
        channel.grace = self.waited.grace_s
        self.limits = limits
        self.worth: dict[str, float] = {}  # the points of exercises, which `check` returns there
        self.broken: AnswerError | None = None

    def __exit__(self, *error: object) -> None:
        self.close()

    def run_cell(self, source: str, limit_s: float, ends: bool = True) -> CellRun:
        """Run one cell, or a piece of one that `ends` it or not. Raises AnswerError (timeout, died,
        protocol), and the session is broken then."""
        try:
            body = encode({"source": source, "ends": ends, "worth": self.worth})
        except ProtocolError:  # its letters take several bytes each on their way
            return CellRun(
                "ValueError: the cell is too long to be run; a cell may have about a million"
                " letters",
                ("ValueError",),
            )
        self.waited.begin()
        _, reply = self.converse(
            w.RUN, body, time.monotonic() + limit_s, f"The cell did not finish within {limit_s:g} s"
        )
        if self._channel.pending():
            raise self.fail("protocol", "The cell wrote into the grader's own channel")
        try:
            return _reported(decode(reply, plain=True))
        except ProtocolError as e:
            raise self.fail("protocol", f"The cell's process sent nonsense: {e}") from None

    def converse(
        self, kind: bytes, body: bytes, deadline: float, late: str, serve: Any = None
    ) -> tuple[bytes, bytes]:
        """Ask, serve callbacks with `serve(body)` until the answer comes. Raises AnswerError if
        none does."""
        if self.broken is not None:
            raise self.broken
        conversation = secrets.randbits(63)
        try:
            if self._channel.pending():
                self._channel.receive(deadline)  # Closed, if that is why
                raise ProtocolError("it spoke without being asked")
            self._channel.send(kind, conversation, body, deadline)
            while True:
                got, about, reply = self._channel.receive(deadline)
                if about != conversation:
                    raise ProtocolError("it answered a question that nobody asked")
                if got != w.CALLBACK or serve is None:
                    return got, reply
                answer, sent = serve(reply)
                self._channel.send(answer, conversation, sent, deadline)
        except TimeoutError:
            raise self.fail("timeout", late) from None
        except w.Closed:
            raise self.fail("died", "") from None
        except ProtocolError as e:
            raise self.fail("protocol", f"Its process sent nonsense: {e}") from None
        except AnswerError:  # of a conversation within this one, which has ended the process
            raise
        except (MemoryError, RecursionError) as e:
            raise self.fail(
                "unusable", f"What it sent was too much for the judge ({type(e).__name__})"
            ) from None
        # the check's limit, or our own end: nobody can go on in the middle of a conversation
        except BaseException:
            self.fail("timeout", late)
            raise

    def fail(self, kind: str, message: str) -> AnswerError:
        """Kill the process and remember why."""
        if self.broken is None:
            self.waited.close()  # while the kernel still knows the process
            ended = self._end(kind == "died")
            if kind == "died":
                message = f"Its process ended{_why(ended)}"
            self.broken = AnswerError(kind, message + ".")
            self._leave()
        return self.broken

    def close(self) -> None:
        if self.broken is None:
            self.broken = AnswerError("died", "The session is over.")
            self._end(False)
            self._leave()

    def _leave(self) -> None:
        self._channel.close()
        self.waited.close()


def _reported(ran: Any) -> CellRun:
    """What a process says of a cell. Raises ProtocolError if that is anything else."""
    parts: dict[str, Any] = dict.fromkeys(REPORTED) | (ran if type(ran) is dict else {})
    error, types, output, checked = (parts[name] for name in REPORTED)
    if type(types) is type(checked) is tuple and all(
        type(said) is str for said in (error, output, *types, *checked)
    ):
        return CellRun(error[:2000], types[:20], output[:20_000], checked[:MOST_CHECKED])
    raise ProtocolError("a cell's report has another shape than it should")


def _why(number: int) -> str:
    if not number:
        return " (os._exit, or its end of the channel was closed)"
    known = number in {*signal.Signals}
    name = signal.Signals(number).name if known else f"signal {number}"
    meaning = {
        "SIGSEGV": ", a segmentation fault",
        "SIGXCPU": ", too much processor time",
        "SIGABRT": ", an abort",
    }
    return f" ({name}{meaning.get(name, '')})"
