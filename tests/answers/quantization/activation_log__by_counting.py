def diagnose(log):
    counts, entries, tops, with_outlier = {}, {}, {}, 0
    for entry in log:
        layer, x = entry["layer"], entry["x"]
        total = sum(abs(v) for v in x)
        large = [c for c in range(len(x)) if abs(x[c]) * len(x) > 6 * total]
        for c in large:
            counts[layer, c] = counts.get((layer, c), 0) + 1
        with_outlier += 1 if large else 0
        entries[layer] = entries.get(layer, 0) + 1
        tops.setdefault(layer, []).append(max(abs(v) for v in x))
    for (layer, _), n in counts.items():
        if n > entries[layer] / 2:
            return "channels"
    if with_outlier > len(log) / 2:
        return "scattered"
    for top in tops.values():
        if len(top) * max(top) > 4 * sum(top):
            return "tokens"
    return "healthy"
