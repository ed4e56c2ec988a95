def choose(budget, options):
    K = np.array([o["K"] for o in options], dtype=np.int64)
    loss = np.array([np.mean(o["losses"]) for o in options])
    L, D, N, H = (budget[x] for x in "LDNH")
    weights = budget["other_params"] + L * (2 * D * N * H + 2 * D * K * H)
    caches = budget["batch"] * budget["n_tokens"] * L * 2 * K * H
    n_bytes = (weights + caches) * budget["bytes_per_value"]
    ok = (n_bytes <= budget["memory_bytes"]) & (
        n_bytes / budget["bytes_per_s"] <= budget["step_limit_s"]
    )
    if not ok.any():
        return None
    near = ok & (loss <= loss[ok].min() + budget["margin"])
    return int(K[near].min())
