"""Checks of chapter 1, the two phases."""

ORDER = ("generation_flops", "metrics", "generate", "sampler")
