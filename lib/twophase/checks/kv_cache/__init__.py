"""Checks of chapter 3, the KV cache."""

ORDER = ("max_batch",)
