def cache_bytes(windows, S, K, H, bytes_per_value):
    dropped = sum(max(0, S - w) for w in windows if w is not None)
    per_token = K * H * bytes_per_value * 2
    return (len(windows) * S - dropped) * per_token
