"""A process of a submission that says anything at all: a thread at the other end of the judge's channel."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.session import Session
from twophase.protocol import Callback, ObjectRef, encode
from twophase.protocol import wire as w

KINDS = [bytes([c]) for c in b"RCNMGrVOEBTX?\x00\xff"]
RAN = encode({"error": "", "types": (), "output": ""})
LIMITS = Limits(cell_s=0.05, submission_s=1.0, forks=8)


@dataclass(frozen=True)
class Say:
    """One thing to say when asked: a message in some conversation, raw bytes, the end, or nothing."""

    kind: bytes = b""
    about: str = "this"  # this, the last, none that was ever asked
    body: bytes = b""
    raw: bytes | None = None
    hang_up: bool = False


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=4)
    | st.builds(Callback, st.integers(0, 3))
    | st.builds(ObjectRef, st.integers(0, 3)),
    lambda x: (
        st.lists(x, max_size=3)
        | st.dictionaries(st.text(max_size=2), x, max_size=3)
        | st.tuples(x, x)
    ),
    max_leaves=6,
)
targets = st.sampled_from(
    [0, 1, 2, 3, 99, -1, None, "choose", "__import__", (1,), ObjectRef(1), True]
)
calls = st.builds(
    w.pack_call,
    targets,
    st.lists(values, max_size=3),
    st.dictionaries(st.sampled_from(["probs", "self", "x", ""]), values, max_size=2),
)
errors = st.builds(
    lambda k, m, n: encode((k, m, tuple(n))),
    st.sampled_from(
        [
            "missing",
            "not_yet",
            "raised",
            "not_plain",
            "timeout",
            "died",
            "protocol",
            "internal",
            "",
            3,
        ]
    ),
    st.text(max_size=5) | st.none(),
    st.lists(st.sampled_from(["ValueError", "Exception", "NotYet", "", "JudgeFault"]), max_size=25),
)
bodies = values.map(encode) | calls | errors | st.binary(max_size=30) | st.just(RAN) | st.just(b"")
says = st.one_of(
    st.builds(
        Say, st.sampled_from(KINDS), st.sampled_from(["this"] * 4 + ["last", "none"]), bodies
    ),
    st.builds(Say, st.just(w.VALUE), st.just("this"), values.map(encode)),
    st.builds(Say, st.just(w.OBJECT), st.just("this"), st.just(encode(ObjectRef(1)))),
    st.builds(Say, st.just(w.CALLBACK), st.just("this"), calls),
    st.builds(lambda raw: Say(raw=raw), st.binary(min_size=1, max_size=40)),
    st.builds(
        lambda n, k: Say(raw=struct.pack(">IcQ", n, k, 7)),
        st.integers(0, 2**32 - 1),
        st.sampled_from(KINDS),
    ),
    st.just(Say(hang_up=True)),
)
scripts = st.lists(
    st.lists(says, max_size=3), max_size=8
)  # what is said after each message of the judge's; then silence


class Child:
    """Plays a script over a socket. With `polite` it reports every cell as run, and only the answers are nonsense."""

    def __init__(self, end: socket.socket, script: Sequence[Sequence[Say]], polite: bool) -> None:
        self._end = end
        self._script = list(script)
        self._polite = polite
        self._asked = [0, 0]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive(), "the judge did not hang up"

    def _run(self) -> None:
        try:
            with self._end:
                while True:
                    length, kind, about = w.HEAD.unpack(self._exactly(w.HEAD.size))
                    self._exactly(length)
                    self._asked = [self._asked[-1], about]
                    if self._polite and kind == w.RUN:
                        self._end.sendall(w.HEAD.pack(len(RAN), w.RAN, about) + RAN)
                        continue
                    for say in self._script.pop(0) if self._script else ():
                        if say.hang_up:
                            return
                        self._end.sendall(self._bytes(say))
        except (OSError, EOFError):
            return

    def _bytes(self, say: Say) -> bytes:
        if say.raw is not None:
            return say.raw
        about = {"this": self._asked[1], "last": self._asked[0], "none": 12345}[say.about]
        return w.HEAD.pack(len(say.body), say.kind, about) + say.body

    def _exactly(self, n: int) -> bytes:
        parts = b""
        while len(parts) < n:
            got = self._end.recv(n - len(parts))
            if not got:
                raise EOFError
            parts += got
        return parts


def _session(
    script: Sequence[Sequence[Say]], polite: bool, limits: Limits
) -> tuple[Session, Child]:
    ours, theirs = socket.socketpair()
    return Session(lambda died: 0, w.Channel(ours), limits, os.getpid()), Child(
        theirs, script, polite
    )


@contextmanager
def nonsense(script: Sequence[Sequence[Say]], polite: bool = False) -> Iterator[Session]:
    """A session with a child that plays `script`."""
    session, child = _session(script, polite, LIMITS)
    with session:
        yield session
    child.join()


class NonsenseZygote:
    """Stands for a zygote: each of its forks plays the next of `scripts`, then says nothing."""

    def __init__(self, scripts: Sequence[Sequence[Sequence[Say]]], polite: bool) -> None:
        self._scripts = list(scripts)
        self._polite = polite
        self.children: list[Child] = []

    def fork(self, *args: Any, **kwargs: Any) -> Session:
        session, child = _session(
            self._scripts.pop(0) if self._scripts else [], self._polite, LIMITS
        )
        self.children.append(child)
        return session
