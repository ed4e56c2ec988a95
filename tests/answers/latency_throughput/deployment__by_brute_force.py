def choose(workload, machines):
    found = []
    batch = np.arange(1, workload["max_batch"] + 1)
    for m in machines:
        for n in range(1, m["max_chips"] + 1):
            for fmt in workload["formats"]:
                weights = workload["n_params"] * (2 if fmt == "bf16" else 1)
                used = weights + batch * (
                    2.0 * workload["context"] * workload["kv_values_per_token"]
                )
                read, compute = (
                    used / m["bytes_per_s"],
                    2.0 * workload["n_params"] * batch / m["flops_per_s"],
                )
                step = np.maximum(read, compute) / n + (n - 1) * m["sync_s"]
                price = n * m["price_per_hour"] * step / batch
                price[(used > 0.9 * n * m["memory_bytes"]) | (step > workload["tpot_limit_s"])] = (
                    np.inf
                )
                i = price.argmin()
                found.append((price[i], m["name"], n, fmt, batch[i]))
    _, name, n, fmt, B = min(found)
    return {"machine": name, "n_chips": n, "format": fmt, "batch": B}
