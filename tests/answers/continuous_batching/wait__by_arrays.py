def mean_wait(per_s, service_s):
    s = np.array(service_s)
    busy = per_s * s.mean()
    if busy >= 1:
        return None
    spread = s.var() / s.mean() ** 2
    wait = busy / (1 - busy) * s.mean() * (1 + spread) / 2
    return {"busy": busy, "wait_s": wait, "latency_s": wait + s.mean()}
