"""Checks of chapter 5, grouped-query attention."""

ORDER = (
    "head_tests",
    "one_read",
    "intensity",
    "repeated_bytes",
    "batch_by_heads",
    "chip_heads",
    "pool",
    "choose",
)
