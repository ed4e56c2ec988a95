def max_batch(memory_bytes, weight_bytes, kv_bytes_per_token, n_tokens):
    free = memory_bytes - weight_bytes
    return free // (kv_bytes_per_token * n_tokens) if free > 0 else 0
