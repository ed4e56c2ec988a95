"""Checks of chapter 4, latency and throughput."""

ORDER = (
    "step_time",
    "decode_point",
    "cost",
    "front",
    "bytes_read",
    "calculator",
    "step_log",
    "deployment",
)
