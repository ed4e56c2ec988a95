"""What crosses between a notebook and its judge: plain values, encoded, and nothing else.

This room imports no other room, so that the process that runs a notebook can have it without having
the checks.
"""

from twophase.protocol.codec import Callback, ObjectRef, decode, encode, roundtrip
from twophase.protocol.errors import AnswerError, NotYet, ProtocolError, Withheld

__all__ = [
    "AnswerError",
    "Callback",
    "NotYet",
    "ObjectRef",
    "ProtocolError",
    "Withheld",
    "decode",
    "encode",
    "roundtrip",
]
