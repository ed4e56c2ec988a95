"""Checks of chapter 1, the two phases."""

ORDER = ("generation_flops", "metrics", "generate", "sampler", "forward_flops", "slow_log", "top_p_cases")
