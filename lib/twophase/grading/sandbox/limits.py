"""What one submission may take."""

from __future__ import annotations

from dataclasses import dataclass

MAX_FILES = 256  # open at a time


@dataclass(frozen=True)
class Limits:
    """What one submission may take."""

    cell_s: float = 30.0
    submission_s: float = 300.0
    memory_bytes: int = 2 * 10**9
    file_bytes: int = 2**20  # where files can be written at all: in practice
    waiting_s: float = 180.0  # for a processor, in all: does not count as the submission's time
    forks: int = 40
