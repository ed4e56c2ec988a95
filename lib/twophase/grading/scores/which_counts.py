"""Which of several submissions counts: the latest or the best, as the course says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from twophase.grading.scores.outcome import Outcome
from twophase.grading.scores.rubric import ZERO


def which_counts(tried: Sequence[Outcome], digests: Mapping[str, str], counts: str) -> Outcome:
    """The outcome that counts of one for each submission, with a note on the others; `counts` is
    `latest` or `best`. `digests` tells which files are the same work.

    Files that cannot be read are passed over if another can.
    """
    readable = [o for o in tried if not _is_unreadable(o)]
    left = [o.file for o in tried if readable and _is_unreadable(o)]
    notes = [f"{file} cannot be read: passed over" for file in left]
    candidates = readable or tried
    chosen = _latest(candidates, digests) if counts == "latest" else _best(candidates)
    if len(candidates) > 1 and chosen.file:
        guesses = "" if counts == "latest" else ", each of them another guess"
        notes.append(f"{counts} of {len(candidates)} submissions{guesses}: {chosen.file}")
    return chosen.noting(*notes)


def _is_unreadable(outcome: Outcome) -> bool:
    return any(c.status == "unreadable" for c in outcome.exercises)


def _latest(tried: Sequence[Outcome], digests: Mapping[str, str]) -> Outcome:
    """Pending if they differ and it is not known when each came."""
    if any(o.handed_in is None for o in tried) and len({digests[o.file] for o in tried}) > 1:
        files = ", ".join(o.file for o in tried)
        return replace(tried[0], file="").waiting_for(
            f"which of {files} is the latest is not known: give files.times (with counts: best"
            " whoever hands in several has as many guesses)"
        )
    return max(tried, key=lambda o: (_when(o), o.file))


def _best(tried: Sequence[Outcome]) -> Outcome:
    """The earlier one of equals. Pending if any is: first for the grader, then for a person."""
    pending = [o for o in tried if o.status == "pending"]
    if pending:
        return min(pending, key=lambda o: (not o.fault, o.file))
    return max(tried, key=lambda o: (o.points or ZERO, -_when(o).timestamp(), o.file))


def _when(outcome: Outcome) -> datetime:
    return outcome.handed_in or datetime(1990, 1, 1, tzinfo=UTC)
