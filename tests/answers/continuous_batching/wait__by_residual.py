def mean_wait(per_s, service_s):
    n, total = len(service_s), math.fsum(service_s)
    busy = per_s * total / n
    if not busy < 1:
        return None
    rest = math.fsum(s**2 for s in service_s) / (2 * total)  # of the one that is being served
    wait = busy * rest / (1 - busy)
    return {"busy": busy, "wait_s": wait, "latency_s": total / n + wait}
