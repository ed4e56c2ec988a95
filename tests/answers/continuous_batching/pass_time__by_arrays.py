def pass_time(starts, n_new, model, bytes_per_s, flops_per_s):
    start, n = np.array(starts), np.array(n_new)
    pairs = (n * (start + (n + 1) / 2)).sum()
    read_s = (model["weight_bytes"] + model["kv_bytes"] * start.sum()) / bytes_per_s
    compute_s = (model["token_flops"] * n.sum() + model["pair_flops"] * pairs) / flops_per_s
    return {"read_s": read_s, "compute_s": compute_s, "pass_s": np.maximum(read_s, compute_s)}
