"""Messages over a socket: they arrive whole, in order and in time, or the receiver hears why not."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.protocol import ProtocolError, encode
from twophase.protocol import wire as w

Pair = tuple[w.Channel, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield w.Channel(ours), theirs


def soon() -> float:
    return time.monotonic() + 10


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


def test_the_other_side_going_away_is_told_apart_from_silence(pair: Pair) -> None:
    channel, theirs = pair
    theirs.sendall(b"\x00\x00")
    theirs.close()
    with pytest.raises(w.Closed):
        channel.receive(soon())
    with pytest.raises(w.Closed):
        channel.send(w.CALL, 1, b"", soon())


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
    call = w.pack_call(("f", 1), [encode(1.5), encode([1])], {"k": encode(None)})
    assert w.unpack_call(call) == (("f", 1), [1.5, [1]], {"k": None})
    assert w.unpack_error(w.pack_error("raised", "ValueError: no", ("ValueError",))) == (
        "raised",
        "ValueError: no",
        ("ValueError",),
    )
