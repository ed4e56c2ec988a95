"""Checks of chapter 7, local attention."""

ORDER = (
    "mask",
    "mask_tests",
    "receptive_field",
    "ring",
    "prefill",
    "cache_bytes",
    "step_bytes",
    "ring_log",
    "ratio",
)
