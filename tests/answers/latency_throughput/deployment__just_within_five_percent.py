def choose(workload, machines):
    P, batch = workload["n_params"], np.arange(1.0, workload["max_batch"] + 1)
    one = 2 * workload["context"] * workload["kv_values_per_token"]
    offers = []
    for i, m in enumerate(machines):
        for n in range(1, m["max_chips"] + 1):
            for fmt in workload["formats"]:
                used = P * (1 if fmt == "int8" else 2) + one * batch
                step = np.maximum(used / m["bytes_per_s"], 2 * P * batch / m["flops_per_s"]) / n
                step += (n - 1) * m["sync_s"]
                possible = (used <= 0.9 * n * m["memory_bytes"]) & (
                    step <= workload["tpot_limit_s"]
                )
                prices = n * m["price_per_hour"] * step / batch
                offers += [(prices[j], i, n, fmt, j + 1) for j in np.flatnonzero(possible)]
    best = min(offers)[0]
    _, i, n, fmt, B = max(offer for offer in offers if offer[0] <= 1.0499 * best)
    return {
        "batch": np.int64(B),
        "format": fmt,
        "n_chips": torch.tensor(n),
        "machine": machines[i]["name"],
    }
