def choose(workload, machine):
    P = workload["n_params"]
    W = machine["bytes_per_s"]
    weights, cache = P * workload["bytes_per_param"], workload["cache_bytes_per_sequence"]
    best, rate = 1, 0.0
    for B in range(1, workload["max_batch"] + 1):
        tiles = math.ceil(B / machine["tile"])
        step = (
            max(2 * P * tiles * machine["tile"] / machine["flops_per_s"], weights / W)
            + B * cache / W
        )
        if weights + B * cache > machine["memory_bytes"] or step > workload["tpot_limit_s"]:
            continue
        if B / step > rate:
            best, rate = B, B / step
    return best
