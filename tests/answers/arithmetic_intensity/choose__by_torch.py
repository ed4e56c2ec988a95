def choose(workload, machine):
    P, W = workload["n_params"], machine["bytes_per_s"]
    B = torch.arange(1, workload["max_batch"] + 1, dtype=torch.float64)
    rows = torch.ceil(B / machine["tile"]) * machine["tile"]
    caches = B * workload["cache_bytes_per_sequence"]
    weights = P * workload["bytes_per_param"]
    step = torch.clamp(2 * P * rows / machine["flops_per_s"], min=weights / W) + caches / W
    step[(step > workload["tpot_limit_s"]) | (weights + caches > machine["memory_bytes"])] = (
        math.inf
    )
    return (B / step).argmax() + 1
