def cache_bytes(windows, S, K, H, bytes_per_value):
    total = 0
    for window in windows:
        kept = S
        if window is not None and window < S:
            kept = window
        total += 2 * kept * K * H * bytes_per_value
    return total
