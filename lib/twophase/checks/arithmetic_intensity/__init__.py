"""Checks of chapter 2, arithmetic intensity."""

ORDER = (
    "matmul",
    "critical_batch",
    "predict",
    "overlap",
    "online_softmax",
    "flash",
    "merge",
    "choose",
)
