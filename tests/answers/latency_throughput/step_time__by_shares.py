def step_time(weight_bytes, B, n_tokens, kv_bytes_per_token, n_chips, bytes_per_s):
    caches = np.full(B, n_tokens, dtype=np.float64) * kv_bytes_per_token
    share = (np.float64(weight_bytes) + caches.sum()) / n_chips
    return torch.tensor(share / bytes_per_s, dtype=torch.float64)
