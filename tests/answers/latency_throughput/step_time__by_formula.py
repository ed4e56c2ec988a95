def step_time(weight_bytes, B, n_tokens, kv_bytes_per_token, n_chips, bytes_per_s):
    return (weight_bytes + B * n_tokens * kv_bytes_per_token) / (n_chips * bytes_per_s)
