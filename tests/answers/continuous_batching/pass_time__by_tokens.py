def pass_time(starts, n_new, model, bytes_per_s, flops_per_s):
    flops, read = 0, model["weight_bytes"]
    for start, n in zip(starts, n_new):
        read += start * model["kv_bytes"]
        for t in range(n):
            flops += model["token_flops"] + (start + t + 1) * model["pair_flops"]
    read_s, compute_s = read / bytes_per_s, flops / flops_per_s
    return {
        "read_s": read_s,
        "compute_s": compute_s,
        "pass_s": sorted([read_s, compute_s])[1],
    }
