"""Checks of chapter 11, mixture of experts."""

ORDER = (
    "params",
    "route",
    "biased",
    "run",
    "seats",
    "expert_bytes",
    "critical",
    "load_log",
    "seat_tests",
    "choose",
)
