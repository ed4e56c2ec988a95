def chart_fault(chart, lengths):
    slots, steps = len(chart), len(chart[0])
    found = {name: np.zeros((slots, steps), dtype=bool) for name in lengths}
    for i, row in enumerate(chart):
        for t, name in enumerate(row):
            if name:
                found[name][i, t] = True
    if any((f.sum(0) > 1).any() for f in found.values()):
        return "two slots"
    if any((f.sum(1) > 0).sum() > 1 for f in found.values()):
        return "moves"
    if any(found[name].sum() != n for name, n in lengths.items()):
        return "length"
    starts = []
    for f in found.values():
        at = np.flatnonzero(f.any(0))
        if at[-1] - at[0] + 1 != len(at):
            return "pauses"
        starts.append(at[0])
    for t in range(max(starts, default=0)):
        if any(not row[t] for row in chart):
            return "idle"
    return "fine"
