"""How many examples a property is tried with: the same few in `make test`, ten times as many, drawn
afresh, in `make test-more`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

FEW = settings.default.derandomize  # the profile of tests/conftest.py


def draws(examples: int, *allowed: HealthCheck) -> settings:
    """`@given(...)` with half as many examples in `make test`, five times as many in `make
    test-more`, and without these of hypothesis' own checks."""
    untimed = settings.default.suppress_health_check
    drawn = -(-examples // 2) if FEW else 5 * examples
    return settings(max_examples=drawn, suppress_health_check=[*untimed, *allowed])
