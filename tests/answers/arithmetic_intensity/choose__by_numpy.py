def choose(workload, machine):
    B = np.arange(1, workload["max_batch"] + 1)
    rows = np.ceil(B / machine["tile"]) * machine["tile"]
    weights = workload["n_params"] * workload["bytes_per_param"]
    caches = B * float(workload["cache_bytes_per_sequence"])
    products = np.maximum(
        rows * (2 * workload["n_params"] / machine["flops_per_s"]), weights / machine["bytes_per_s"]
    )
    step = products + caches / machine["bytes_per_s"]
    allowed = (weights + caches <= machine["memory_bytes"]) & (step <= workload["tpot_limit_s"])
    return B[np.where(allowed, B / step, 0.0).argmax()]
