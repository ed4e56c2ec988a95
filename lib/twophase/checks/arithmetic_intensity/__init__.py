"""Checks of chapter 2, arithmetic intensity."""

ORDER = (
    "matmul",
    "overlap",
    "online_softmax",
    "flash",
    "merge",
    "predict",
    "critical_batch",
    "choose",
)
