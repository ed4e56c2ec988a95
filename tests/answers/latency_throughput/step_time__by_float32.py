def step_time(weight_bytes, B, n_tokens, kv_bytes_per_token, n_chips, bytes_per_s):
    held = torch.tensor([weight_bytes, B * n_tokens * kv_bytes_per_token], dtype=torch.float32)
    return (held / n_chips / bytes_per_s).sum()
