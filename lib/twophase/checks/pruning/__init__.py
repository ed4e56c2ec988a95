"""Checks of chapter 13, pruning."""

ORDER = (
    "leave_one_out",
    "cut_heads",
    "mapping",
    "config",
    "predict",
    "turned",
    "distill",
    "healing_log",
    "two_four",
    "stored",
    "choose",
)
