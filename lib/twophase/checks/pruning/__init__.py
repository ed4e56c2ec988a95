"""Checks of chapter 13, pruning."""

ORDER = (
    "leave_one_out",
    "cut_heads",
    "config",
    "mapping",
    "predict",
    "distill",
    "healing_log",
    "two_four",
    "stored",
    "choose",
)
