def longest_context(
    memory_bytes,
    n_params,
    bytes_per_param,
    B,
    kv_bytes_per_token,
    activation_bytes,
    overhead_percent,
):
    usable = memory_bytes / (1 + overhead_percent / 100)
    free = usable - n_params * bytes_per_param - activation_bytes
    return math.floor(free / (B * kv_bytes_per_token)) if free > 0 else 0
