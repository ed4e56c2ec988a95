"""How long a test waits for a process that it started: only against what never ends.

A busy neighbor may make it ten times as slow. Pytest's own limit (pyproject.toml) is longer.
"""

PATIENCE_S = 500
