def choose(workload, machines):
    def price(m, n, fmt, B):
        weights = workload["n_params"] * (1 if fmt == "int8" else 2)
        used = weights + 2 * B * workload["context"] * workload["kv_values_per_token"]
        step = max(used / m["bytes_per_s"], 2 * workload["n_params"] * B / m["flops_per_s"]) / n
        step += (n - 1) * m["sync_s"]
        possible = used <= 0.9 * n * m["memory_bytes"] and step <= workload["tpot_limit_s"]
        return n * m["price_per_hour"] * step / B if possible else math.inf

    prices = {}
    for i, m in enumerate(machines):
        for n in range(1, m["max_chips"] + 1):
            for fmt in workload["formats"]:
                for B in range(1, workload["max_batch"] + 1):
                    p = price(m, n, fmt, B)
                    if p == math.inf:
                        break
                    prices[i, n, fmt, B] = p
    best = min(prices.values())
    i, n, fmt, B = max((c for c in prices if prices[c] <= 1.0499 * best), key=prices.get)
    return {
        "batch": np.int64(B),
        "format": fmt,
        "n_chips": torch.tensor(n),
        "machine": machines[i]["name"],
    }
