def diagnose(events, server):
    new, cached, waiting, preempted, took = (
        torch.tensor([float(e[key]) for e in events])
        for key in ("new_tokens", "cached_tokens", "waiting", "preempted", "step_s")
    )
    reading = (server["weight_bytes"] + cached * server["kv_bytes_per_token"]) / server[
        "bytes_per_s"
    ]
    computing = 2 * server["n_params"] * new / server["flops_per_s"]
    signs = {
        "preempting": (preempted > 0).float().mean() > 0.05,
        "overhead-bound": (took / torch.maximum(reading, computing)).quantile(0.5) > 2,
        "underfilled": (
            ((waiting > 0) & (cached < server["capacity_tokens"] / 2)).float().mean() > 0.5
        ),
        "compute-bound": (computing > reading).float().mean() > 0.5,
        "healthy": True,
    }
    return next(label for label, applies in signs.items() if applies)
