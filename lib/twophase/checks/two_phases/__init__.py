"""Checks of chapter 1, the two phases."""

ORDER = (
    "forward_flops",
    "sampler",
    "top_p_cases",
    "generate",
    "generation_flops",
    "metrics",
    "slow_log",
)
