"""What need not be graded again: a submission that has a result under today's conditions. So a run
that was interrupted goes on where it stopped."""

from __future__ import annotations

import contextlib
import hashlib

from twophase.grading.errors import GraderFault, Unreadable
from twophase.grading.files.digests import library_digest
from twophase.grading.intake.submissions import Submission
from twophase.grading.judge.judge import Course
from twophase.grading.results import records
from twophase.grading.results.reader import Index


class AlreadyGraded:
    """Whether a submission has a result under today's conditions; none of a student's is parsed."""

    def __init__(self, course: Course, index: Index) -> None:
        self._course = course
        self._index = index
        self._releases: dict[str, str] = {}

    def __contains__(self, submission: Submission) -> bool:
        name, library = submission.name, library_digest()
        if name not in self._index.last:
            return False
        digest = ""
        with contextlib.suppress(Unreadable):
            digest = hashlib.sha256(submission.read()).hexdigest()
        seed, official = self._course.seed_for(submission), records.confinement()[1]
        keys = (  # it may be of any topic
            records.key(name, digest, self._release(topic), library, seed, official)
            for topic in self._index.topics
        )
        return any(self._index.has(name, key) for key in keys)

    def _release(self, topic: str) -> str:
        """The digest of a topic's release; where something is wrong, what no release has."""
        if topic not in self._releases:
            try:
                self._releases[topic] = self._course.release_digest(topic)
            except (ValueError, OSError, GraderFault):
                self._releases[topic] = "none"
        return self._releases[topic]
