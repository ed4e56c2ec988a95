"""Checks of chapter 16, paging."""

ORDER = (
    "waste",
    "slots",
    "attention",
    "gathered",
    "blocks",
    "snippet",
    "prefix",
    "evict",
    "admit",
    "preempt",
    "block_size",
    "manager_tests",
    "counts_log",
)
