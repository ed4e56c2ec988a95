def longest_context(
    memory_bytes,
    n_params,
    bytes_per_param,
    B,
    kv_bytes_per_token,
    activation_bytes,
    overhead_percent,
):
    usable = 100 * memory_bytes // (100 + overhead_percent)
    free = usable - n_params * bytes_per_param - activation_bytes
    return free // (B * kv_bytes_per_token) if free > 0 else 0
