"""Checks of chapter 3, the KV cache."""

ORDER = (
    "kv_bytes",
    "max_batch",
    "budget",
    "step_bytes",
    "cache",
    "cache_tests",
    "rope_cached",
    "cached_attention",
    "ragged",
    "snippet",
)
