"""The course's secret: what makes the cases of official grading unpredictable to whoever has
everything that students have.

A seed depends on the secret and on the student (the file's name, where nothing tells whose it is),
never on what is in a submission: nobody can choose cases by handing in other bytes. Making a seed's
cases takes up to half a second a topic, so students share a number of sets of cases.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

MIN_BYTES = 16
MAX_BYTES = 4096
CREATED_BYTES = 32  # of randomness; the file has them as hex
SETS = 16


def read_secret(path: Path) -> bytes:
    """The secret in this file, without a final newline. Raises ValueError if there is none, if it
    is no secret (too short, too long), and if others on this machine may read it."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ValueError(f"{path} is no file; give the file that holds the course's secret")
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ValueError(
            f"there is no secret {path}; make one with `twophase release --new-secret {path}`"
        ) from None
    except OSError as e:
        raise ValueError(f"the secret {path} cannot be read: {e.strerror}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        why = f"others on this machine have rights to {path}, so it is no secret"
        raise ValueError(f"{why}; take them away: chmod 600 {path}")
    if len(data) > MAX_BYTES:
        why = "a secret is one line, and this is another file"
        raise ValueError(f"{path} has more than {MAX_BYTES} bytes; {why}")
    secret = data.removesuffix(b"\n").removesuffix(b"\r")
    if len(secret) < MIN_BYTES:
        raise ValueError(
            f"the secret in {path} has {len(secret)} bytes; it needs at least {MIN_BYTES}"
        )
    return secret


def create(path: Path) -> None:
    """Write a new secret that only you can read. Raises ValueError if the file exists."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ValueError(
            f"{path} exists, and a secret is never overwritten: other cases would be drawn"
        ) from None
    except OSError as e:
        raise ValueError(f"the secret {path} cannot be written: {e.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(secrets.token_hex(CREATED_BYTES).encode("ascii") + b"\n")
    except OSError as e:  # half a secret is none, and would be in the next one's way
        path.unlink()
        raise ValueError(f"the secret {path} cannot be written: {e.strerror}") from None


def case_set(secret: bytes, student: str, sets: int = SETS) -> int:
    """The student's set of cases, 0 to sets - 1. Raises ValueError if there are no sets."""
    if sets < 1:
        raise ValueError(f"there must be at least one set of cases to choose from; got {sets}")
    return int.from_bytes(_hmac(secret, "student " + student), "big") % sets


def seed_of(secret: bytes, student: str, sets: int = SETS) -> str:
    """The seed of a student's cases, 64 hex digits: one of `sets`, or with 0 sets their own."""
    chosen = f"own {student}" if sets == 0 else f"set {case_set(secret, student, sets)}"
    return _hmac(secret, chosen).hex()


def _hmac(secret: bytes, text: str) -> bytes:
    return hmac.new(secret, text.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
