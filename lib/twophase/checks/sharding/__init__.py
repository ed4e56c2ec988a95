"""Checks of chapter 10, sharding."""

ORDER = (
    "collective_time",
    "ring",
    "mlp",
    "summed",
    "heads",
    "length",
    "which_layout",
    "sent_bytes",
    "crossover",
    "choose",
)
