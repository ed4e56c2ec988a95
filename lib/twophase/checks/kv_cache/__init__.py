"""Checks of chapter 3, the KV cache."""

ORDER = (
    "kv_bytes",
    "max_batch",
    "rope_cached",
    "cache",
    "cache_tests",
    "cached_attention",
    "ragged",
    "snippet",
    "step_bytes",
    "budget",
)
