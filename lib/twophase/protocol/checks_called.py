"""What a notebook that is graded and the grader tell each other of checks: which were called, and
what each is worth."""

from __future__ import annotations

CALLED: dict[str, None] = {}  # the ids with which `check` was called, for the grader to ask
WORTH: dict[str, float] = {}  # their points, from the grader: what `check` returns there
