def diagnose(log):
    def full(visits):
        return max(visits) > 2 * sum(visits) / len(visits)

    layers = sorted({e["layer"] for e in log})
    sums = [np.sum([e["visits"] for e in log if e["layer"] == i], axis=0).tolist() for i in layers]
    if 0 in [v for s in sums for v in s]:
        return "dead"
    if any(map(full, sums)):
        return "skewed"
    if sum(full(e["visits"]) for e in log) > len(log) / 2:
        return "bursty"
    return "healthy"
