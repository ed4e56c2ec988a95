"""Checks of chapter 12, quantization."""

ORDER = (
    "float_code",
    "pack",
    "q4_0",
    "grids",
    "groups",
    "snippet",
    "error_bound",
    "outlier_product",
    "activation_log",
    "gptq_column",
    "awq",
    "checkpoint_bytes",
    "nf4",
    "qlora_bytes",
    "cache_axes",
    "step_time",
    "stops_paying",
    "quantizer_tests",
    "choose",
)
