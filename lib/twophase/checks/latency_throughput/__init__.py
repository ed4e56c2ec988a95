"""Checks of chapter 4, latency and throughput."""

ORDER = (
    "bytes_read",
    "decode_point",
    "front",
    "calculator",
    "step_log",
    "cost",
    "step_time",
    "deployment",
)
