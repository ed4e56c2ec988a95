"""Checks of chapter 1, the two phases."""

ORDER = (
    "generation_flops",
    "metrics",
    "generate",
    "sampler",
    "top_p_cases",
    "forward_flops",
    "slow_log",
)
