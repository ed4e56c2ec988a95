def diagnose(log):
    totals, uneven = {}, 0
    for entry in log:
        visits = entry["visits"]
        row = totals.setdefault(entry["layer"], [0 for _ in visits])
        for e, n in enumerate(visits):
            row[e] += n
        uneven += 1 if max(visits) / sum(visits) * len(visits) > 2 else -1
    if any(not all(row) for row in totals.values()):
        return "dead"
    for row in totals.values():
        if len(row) * max(row) > sum(row) + sum(row):
            return "skewed"
    return "bursty" if uneven > 0 else "healthy"
