"""The side of the conversation that runs a submission: cells, calls, objects, callbacks. It decides
nothing, it holds no secret.

Everything here runs in the process that the submission can change at will: whatever this code is
made to send, the judge takes it for a value to compare, or for nonsense. One thing is seen only
here: that an answer changes its arguments. Who hides that saves a copy, and no more.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from twophase.protocol import AnswerError, ObjectRef, decode, encode
from twophase.protocol import wire as w
from twophase.protocol.arguments import ArgumentGuard, lent
from twophase.protocol.checks_called import CALLED, WORTH
from twophase.protocol.codec import Callback, Reference
from twophase.protocol.errors import error_from
from twophase.protocol.invoke import crossed, guarded
from twophase.protocol.missing import find, find_method

MAX_OUTPUT = 16_384  # characters kept of what one cell prints
MAX_NESTING = 40  # calls within callbacks within calls


class Capped(io.TextIOBase):
    """Standard output and error of the notebook: the first MAX_OUTPUT characters, the rest counted
    and forgotten. Whoever closes it has closed nothing."""

    name = "<stdout>"
    encoding = "utf-8"
    errors = "replace"

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._kept = self._dropped = 0

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1  # for `faulthandler.enable()`

    def flush(self) -> None:
        """IPython asks for it after each value that a cell shows: as in a kernel it never fails."""

    def write(self, text: str) -> int:
        room = MAX_OUTPUT - self._kept
        if room > 0:
            self._parts.append(str(text[:room]))
            self._kept += len(self._parts[-1])
        self._dropped += max(0, len(text) - room)
        return len(text)

    def take(self) -> str:
        """What was written since the last take."""
        text = "".join(self._parts)
        if self._dropped:
            text += f"\n… {self._dropped} more characters"
        self._parts, self._kept, self._dropped = [], 0, 0
        return text


@contextlib.contextmanager
def to_the_end() -> Iterator[None]:
    """The process ends where this block does: with 0 once the judge has gone."""
    code = 0
    try:
        yield
    except w.Closed:
        pass
    except BaseException:
        code = 70
    finally:
        os._exit(code)


class Worker:
    """Serves one submission over `channel`: runs cells in `shell`, calls what they define."""

    def __init__(self, channel: w.Channel, shell: Any) -> None:
        self._channel = channel
        self._shell = shell
        self._objects: dict[int, Any] = {}
        self._guard = ArgumentGuard()
        self._open: list[int] = []  # conversations, innermost last
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._output = Capped()
        self._ran: set[str] = set()

    def serve(self) -> None:
        """Answer until the judge hangs up."""
        sys.stdout = sys.stderr = self._output
        while True:
            self._answer(*self._channel.receive())

    def _answer(self, kind: bytes, conversation: int, body: bytes) -> None:
        self._open.append(conversation)
        try:
            reply = self._handle(kind, body)
        except AnswerError as e:
            reply = w.ERROR, w.pack_error(e.kind, e.message, e.type_names)
        except BaseException as e:
            said = error_from(e)
            reply = w.ERROR, w.pack_error("raised", said.message, said.type_names)
        self._open.pop()
        # a process that the answer forked and let run on into our code
        if os.getpid() != self._pid:
            os._exit(0)
        self._channel.send(reply[0], conversation, reply[1])

    def _handle(self, kind: bytes, body: bytes) -> tuple[bytes, bytes]:
        if len(self._open) > MAX_NESTING:
            raise RecursionError("calls and callbacks are nested too deeply")
        if kind == w.RUN:
            return w.RAN, encode(self._run(decode(body)))
        target, args, kwargs = w.unpack_call(body, refer=self._referred)
        return self._invoke(kind, target, tuple(args), kwargs)

    def _invoke(
        self, kind: bytes, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[bytes, bytes]:
        names = self._shell.user_ns
        if kind == w.CALL:
            return w.VALUE, self._guard.function(target, find(names, target), (args, kwargs))
        if kind == w.HANDED:
            value = guarded(find(names, target), args, kwargs)
            return w.VALUE, crossed(encode, value, f"what {target} returned")
        if kind == w.NEW:
            instance = self._guard.made(target, find(names, target), (args, kwargs))
            self._objects[len(self._objects) + 1] = instance
            return w.OBJECT, encode(ObjectRef(len(self._objects)))
        if kind == w.EACH:
            frames = [self._one(target, asked) for asked in args]
            return w.VALUE, crossed(encode, frames, "what was asked for at once")
        instance, name = target
        if kind == w.METHOD:
            return w.VALUE, self._guard.method(name, find_method(instance, name), (args, kwargs))
        return w.VALUE, self._one(instance, name)

    def _one(self, instance: Any, asked: str | tuple[Any, ...] | list[Any]) -> bytes:
        """The frame of an object's attribute, or of what a method gives: (its name, *arguments);
        in a list, it may give whatever it likes."""
        if isinstance(asked, str):
            value = guarded(getattr, (instance, asked), {})
            frame: bytes = crossed(encode, value, f"the attribute {asked}")
            return frame
        name, *args = asked
        method = find_method(instance, name)
        if isinstance(asked, tuple):
            return self._guard.method(name, method, (tuple(args), {}))
        self._guard.made(name, method, (tuple(args), {}))
        return encode(None)

    def _referred(self, reference: Reference) -> Any:
        """What an argument stands for: a function that calls back, or an object that was made
        here."""
        if type(reference) is Callback:
            return self._callback(reference)
        return self._objects[reference.id]

    def _callback(self, there: Callback) -> Callable[..., Any]:
        def callback(*args: Any, **kwargs: Any) -> Any:
            body = crossed(
                lambda given: w.pack_call(there.id, *given),
                (args, kwargs),
                "an argument of the callback",
            )
            with self._lock:
                return self._ask(body)

        return lent(callback) if there.lends else callback

    def _ask(self, body: bytes) -> Any:
        """Ask the judge to run a callback; meanwhile it may call the answer again."""
        if not self._open:
            raise RuntimeError(
                "a callback can only be called while the check is waiting for an answer"
            )
        conversation = self._open[-1]
        self._channel.send(w.CALLBACK, conversation, body)
        while True:
            kind, about, reply = self._channel.receive()
            if kind == w.RETURN and about == conversation:
                return decode(reply)
            if kind == w.RAISE and about == conversation:
                raise _exception(*w.unpack_error(reply))
            self._answer(kind, about, reply)

    def _run(self, cell: dict[str, Any]) -> dict[str, Any]:
        """Run a cell as a notebook would: magics and top-level await work, an exception ends the
        cell and nothing else. A piece of one that is not its last shows no value, as there."""
        WORTH.update(cell["worth"])
        error: BaseException | None
        try:
            with _quiet(self._shell) if not cell["ends"] else contextlib.nullcontext():
                result = self._shell.run_cell(cell["source"], store_history=False, silent=False)
            error = result.error_before_exec or result.error_in_exec
        except BaseException as e:  # in the shell itself, which a cell has set up otherwise
            error = e
        said = error_from(error) if error is not None else None
        called = tuple(map(str, CALLED))  # since the last cell
        CALLED.clear()
        return {
            "error": said.message if said else "",
            "types": said.type_names if said else (),
            "output": self._output.take(),
            "checked": called,
        }


@contextlib.contextmanager
def _quiet(shell: Any) -> Iterator[None]:
    """The last value is not shown, and `_` stays what it is, unless all values are to be shown."""
    shows = shell.ast_node_interactivity
    if str(shows).startswith("last_expr"):
        shell.ast_node_interactivity = "none"
    try:
        yield
    finally:
        if shell.ast_node_interactivity == "none":  # else the piece has set it
            shell.ast_node_interactivity = shows


def _exception(kind: str, message: str, names: tuple[str, ...]) -> BaseException:
    """What a callback raised on the judge's side, as an exception that the answer can catch by its
    usual name."""
    if kind != "raised":
        return AnswerError(kind, message, names)
    for name in names:
        found = getattr(builtins, name, None)
        if isinstance(found, type) and issubclass(found, Exception):
            try:
                return found(message)
            except TypeError:  # UnicodeDecodeError and its like want more than a message
                continue
    return RuntimeError(message)
