def diagnose(events, server):
    n, ratios, preempted, hungry, computing = len(events), [], 0, 0, 0
    for e in events:
        read = (
            server["weight_bytes"] + server["kv_bytes_per_token"] * e["cached_tokens"]
        ) / server["bytes_per_s"]
        compute = 2 * server["n_params"] * e["new_tokens"] / server["flops_per_s"]
        ratios.append(e["step_s"] / max(read, compute))
        preempted += e["preempted"] > 0
        hungry += e["waiting"] > 0 and e["cached_tokens"] < 0.5 * server["capacity_tokens"]
        computing += compute > read
    if preempted / n > 0.05:
        return "preempting"
    ratios.sort()
    if ratios[n // 2] + ratios[(n - 1) // 2] > 4:
        return "overhead-bound"
    if hungry / n > 0.5:
        return "underfilled"
    return "compute-bound" if computing / n > 0.5 else "healthy"
