"""Checks of chapter 6, latent attention."""

ORDER = ("cache_bytes", "latent_cache", "absorb", "attend", "flops")
