def diagnose(events, server):
    log = {k: np.array([e[k] for e in events], dtype=float) for k in events[0]}
    read = (server["weight_bytes"] + log["cached_tokens"] * server["kv_bytes_per_token"]) / server[
        "bytes_per_s"
    ]
    compute = log["new_tokens"] * 2 * server["n_params"] / server["flops_per_s"]
    free = 1 - log["cached_tokens"] / server["capacity_tokens"]
    signs = {
        "preempting": np.mean(log["preempted"] > 0) > 0.05,
        "overhead-bound": np.median(log["step_s"] / np.maximum(read, compute)) > 2,
        "underfilled": np.mean((log["waiting"] > 0) & (free > 0.5)) > 0.5,
        "compute-bound": np.mean(compute > read) > 0.5,
        "healthy": True,
    }
    return next(label for label, holds in signs.items() if holds)
