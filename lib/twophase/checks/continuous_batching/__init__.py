"""Checks of chapter 15, continuous batching."""

ORDER = (
    "burstiness",
    "finishing",
    "step",
    "chart",
    "padding",
    "ragged",
    "chunk",
    "pass_time",
    "wait",
    "starves",
    "p99",
    "percentiles",
    "admit",
)
