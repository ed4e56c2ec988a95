"""How many examples a property is tried with: the same few in `make test`, ten times as many, drawn
afresh, in `make test-more`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

TIMES = 1 if settings.default.derandomize else 10  # the profile of tests/conftest.py


def draws(examples: int, *allowed: HealthCheck) -> settings:
    """`@given(...)` with so many examples, and without these of hypothesis' own checks."""
    untimed = settings.default.suppress_health_check
    return settings(max_examples=TIMES * examples, suppress_health_check=[*untimed, *allowed])
