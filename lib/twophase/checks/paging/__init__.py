"""Checks of chapter 16, paging."""

ORDER = (
    "waste",
    "slots",
    "attention",
    "gathered",
    "blocks",
    "snippet",
    "manager_tests",
    "prefix",
    "evict",
    "admit",
    "preempt",
    "block_size",
)
