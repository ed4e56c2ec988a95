"""Messages over a socket: they arrive whole, in order and in time, or the receiver hears why
not."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE_S

from twophase.protocol import ProtocolError, encode
from twophase.protocol import wire as w

Pair = tuple[w.Channel, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield w.Channel(ours), theirs


def soon() -> float:
    return time.monotonic() + PATIENCE_S


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_a_message_arrives_as_it_was_sent(pair: Pair, size: int) -> None:
    channel, theirs = pair
    other = w.Channel(theirs)
    sender = threading.Thread(target=other.send, args=(w.VALUE, 2**63, b"x" * size))
    sender.start()
    assert channel.receive(soon()) == (w.VALUE, 2**63, b"x" * size)
    sender.join()
    assert not channel.pending()


def test_a_message_that_claims_to_be_enormous_is_refused_before_it_is_read(pair: Pair) -> None:
    channel, theirs = pair
    theirs.sendall(w.HEAD.pack(w.MAX_BODY + 1, w.VALUE, 1))
    with pytest.raises(ProtocolError):
        channel.receive(soon())


def test_a_message_that_never_ends_runs_into_the_deadline(pair: Pair) -> None:
    channel, theirs = pair
    theirs.sendall(w.HEAD.pack(100, w.VALUE, 1) + b"half")
    with pytest.raises(TimeoutError):
        channel.receive(time.monotonic() + 0.05)


def test_nobody_reading_runs_into_the_deadline(pair: Pair) -> None:
    channel, _ = pair
    with pytest.raises(TimeoutError):
        channel.send(w.CALL, 1, bytes(30_000_000), time.monotonic() + 0.05)


def test_somebody_reading_or_sending_ever_so_slowly_runs_into_the_deadline(pair: Pair) -> None:
    channel, theirs = pair
    stop = threading.Event()

    def slowly(move: Callable[[], object]) -> threading.Thread:
        def go_on() -> None:
            with contextlib.suppress(OSError):
                while not stop.wait(0.002):
                    move()

        thread = threading.Thread(target=go_on)
        thread.start()
        return thread

    read: list[int] = []
    threads = [slowly(lambda: read.append(len(theirs.recv(4096))))]
    try:
        with pytest.raises(TimeoutError):
            channel.send(w.CALL, 1, bytes(60_000_000), time.monotonic() + 0.2)
        assert sum(read) < 30_000_000  # it was given up, and not waited for
        theirs.sendall(w.HEAD.pack(10**7, w.VALUE, 1))
        threads.append(slowly(lambda: theirs.send(b"x")))
        with pytest.raises(TimeoutError):
            channel.receive(time.monotonic() + 0.2)
    finally:
        stop.set()
        theirs.shutdown(socket.SHUT_RDWR)  # whoever waits in there comes back
        for thread in threads:
            thread.join()


def test_the_other_side_going_away_is_told_apart_from_silence(pair: Pair) -> None:
    channel, theirs = pair
    theirs.sendall(b"\x00\x00")
    theirs.close()
    with pytest.raises(w.Closed):
        channel.receive(soon())
    with pytest.raises(w.Closed):
        channel.send(w.CALL, 1, b"", soon())


def _messages(stream: bytes) -> list[w.Message]:
    """What a stream of bytes holds, read the plain way: up to the first message that is too large,
    or not all there."""
    found = []
    while len(stream) >= w.HEAD.size:
        length, kind, conversation = w.HEAD.unpack(stream[: w.HEAD.size])
        if length > w.MAX_BODY or len(stream) < w.HEAD.size + length:
            break
        found.append((kind, conversation, stream[w.HEAD.size :][:length]))
        stream = stream[w.HEAD.size + length :]
    return found


message = st.builds(
    lambda kind, about, body: w.HEAD.pack(len(body), bytes([kind]), about) + body,
    st.integers(0, 255),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=40),
)
lies = st.builds(lambda n: w.HEAD.pack(n, w.VALUE, 1), st.integers(0, 2**32 - 1))


@given(
    st.lists(message | lies | st.binary(max_size=20), max_size=6),
    st.lists(st.integers(0, 60), max_size=12),
)
def test_any_stream_in_any_pieces_is_its_messages_and_then_an_end(
    parts: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(parts)
    ours, theirs = socket.socketpair()
    places = [0, *sorted(min(c, len(stream)) for c in cuts), len(stream)]

    def send() -> None:
        with theirs:
            for start, end in itertools.pairwise(places):
                theirs.sendall(stream[start:end])

    found = []
    with ours:
        sender = threading.Thread(target=send)
        sender.start()
        channel = w.Channel(ours)
        with contextlib.suppress(w.Closed, ProtocolError):
            while True:
                found.append(channel.receive(soon()))
        sender.join()
    assert found == _messages(stream)


@given(st.lists(message, max_size=5))
def test_messages_sent_one_byte_at_a_time_arrive_whole(parts: list[bytes]) -> None:
    stream = b"".join(parts)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = threading.Thread(
            target=lambda: [theirs.send(stream[i : i + 1]) for i in range(len(stream))]
        )
        sender.start()
        channel = w.Channel(ours)
        assert [channel.receive(soon()) for _ in parts] == _messages(stream)
        sender.join()
        assert not channel.pending()


@given(st.binary(max_size=200))
def test_no_body_makes_a_reader_of_calls_or_errors_raise_anything_else(body: bytes) -> None:
    for read in (w.unpack_call, w.unpack_error):
        with pytest.raises(ProtocolError):
            read(body)


values = st.none() | st.integers() | st.text() | st.lists(st.integers() | st.text() | st.binary())


@given(
    values
    | st.tuples(values, values, values)
    | st.tuples(values, st.lists(st.binary()), st.dictionaries(st.text(), st.binary()))
)
def test_no_value_in_the_place_of_a_call_or_an_error_raises_anything_else(value: object) -> None:
    for read in (w.unpack_call, w.unpack_error):
        try:
            read(encode(value))
        except ProtocolError:
            continue


def test_a_call_and_an_error_come_back_as_they_were_packed() -> None:
    call = w.pack_call(("f", 1), [1.5, [1]], {"k": None})
    assert w.unpack_call(call) == (("f", 1), [1.5, [1]], {"k": None})
    assert w.unpack_error(w.pack_error("raised", "ValueError: no", ("ValueError",))) == (
        "raised",
        "ValueError: no",
        ("ValueError",),
    )
