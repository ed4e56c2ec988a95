"""Rates, sizes and times as a person reads them."""


def tokens(per_s: float | None) -> str:
    """A throughput."""
    if per_s is None:
        return ""
    return f"{per_s:,.1f} tokens/s" if per_s >= 10 else f"{per_s:.3g} tokens/s"


def gigabytes(n_bytes: float) -> str:
    """Bytes as GB (10^9), or MB where that reads better."""
    return (
        f"{n_bytes / 1e9:,.2f} GB" if n_bytes >= 1e8 or n_bytes == 0 else f"{n_bytes / 1e6:,.3g} MB"
    )


def duration(seconds: float) -> str:
    """Seconds as s, ms or us."""
    for size, unit in ((1, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-6:.4g} us"
