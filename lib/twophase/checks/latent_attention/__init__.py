"""Checks of chapter 6, latent attention."""

ORDER = (
    "cache_bytes",
    "latent_cache",
    "rotated",
    "absorb",
    "attend",
    "shapes",
    "flops",
    "choose",
)
