def choose(workload, machines):
    P, limit, best = workload["n_params"], workload["tpot_limit_s"], None
    one = 2 * workload["context"] * workload["kv_values_per_token"]
    for m in machines:
        for n in range(1, 1 + m["max_chips"]):
            left = limit - (n - 1) * m["sync_s"]
            for fmt in workload["formats"]:
                weights = P * {"bf16": 2, "int8": 1}[fmt]
                bounds = (
                    (0.9 * n * m["memory_bytes"] - weights) / one,
                    (left * n * m["bytes_per_s"] - weights) / one,
                    left * n * m["flops_per_s"] / (2 * P),
                    workload["max_batch"],
                )
                B = math.floor(min(bounds))
                if B < 1:
                    continue
                step = max((weights + B * one) / m["bytes_per_s"], 2 * P * B / m["flops_per_s"]) / n
                price = m["price_per_hour"] * n * (step + (n - 1) * m["sync_s"]) / B
                if best is None or price < best[0]:
                    best = price, {"machine": m["name"], "n_chips": n, "format": fmt, "batch": B}
    return best[1]
