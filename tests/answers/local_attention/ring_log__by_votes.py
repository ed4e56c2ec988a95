import numpy as np


def diagnose(window, passes):
    seen = [row for block in passes for row in block]
    n = len(seen)
    at = np.zeros((n, n + 1), dtype=bool)  # [queries, keys]; what is behind the log in the last
    for p, row in enumerate(seen):
        at[p, np.minimum(np.array(row, dtype=int), n)] = True
    q, k = np.arange(n)[:, None], np.arange(n + 1)
    wanted = (k <= q) & (k > q - window)
    if (at & (k > q)).any():
        return "future"
    gone = wanted & ~at
    if gone.any():
        oldest = k == q - window + 1
        return "short" if np.array_equal(gone, oldest & (q >= window - 1)) else "lost"
    old = (at & (k <= q - window)).any(0)
    if not old.any():
        return "healthy"
    return "long" if old[4:].any() else "sinks"
