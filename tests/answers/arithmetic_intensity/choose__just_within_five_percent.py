def choose(workload, machine):
    w, m = workload, machine

    def step(B):
        computing = 2 * w["n_params"] * -(-B // m["tile"]) * m["tile"] / m["flops_per_s"]
        reading = w["n_params"] * w["bytes_per_param"] / m["bytes_per_s"]
        return max(computing, reading) + B * w["cache_bytes_per_sequence"] / m["bytes_per_s"]

    room = (m["memory_bytes"] - w["n_params"] * w["bytes_per_param"]) // w[
        "cache_bytes_per_sequence"
    ]
    rates = {
        B: B / step(B)
        for B in range(1, int(min(room, w["max_batch"])) + 1)
        if step(B) <= w["tpot_limit_s"]
    }
    best = max(rates.values())
    return min(B for B in rates if rates[B] >= 0.9501 * best)
