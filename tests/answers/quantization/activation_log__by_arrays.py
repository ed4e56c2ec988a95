def diagnose(log):
    layers = {}
    for entry in log:
        layers.setdefault(entry["layer"], []).append(entry["x"])
    sizes = [np.abs(np.array(rows, dtype=object)) for rows in layers.values()]
    large = [s * s.shape[1] > 6 * s.sum(axis=1, keepdims=True) for s in sizes]
    if any((2 * m.sum(axis=0) > len(m)).any() for m in large):
        return "channels"
    if 2 * sum(m.any(axis=1).sum() for m in large) > len(log):
        return "scattered"
    tops = [s.max(axis=1) for s in sizes]
    return "tokens" if any(t.max() * len(t) > 4 * t.sum() for t in tops) else "healthy"
