def front(points):
    if not points:
        return []
    p = np.array(points, dtype=float)  # [n, 2]
    t, r = p[:, 0], p[:, 1]
    no_worse = (t[:, None] <= t) & (r[:, None] >= r)  # [n, n]: row beats column or equals it
    better = (t[:, None] < t) | (r[:, None] > r)
    earlier = np.arange(len(p))[:, None] < np.arange(len(p))
    beaten = (no_worse & (better | earlier)).any(0)
    left = np.flatnonzero(~beaten)
    return list(left[np.argsort(t[left])])
