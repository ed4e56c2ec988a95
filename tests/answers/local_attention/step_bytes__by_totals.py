def step_bytes(B, S, windows, N, K, H, bytes_per_value):
    infinite = float("inf")
    keys = sum(min(S + 1, infinite if w is None else w) for w in windows)
    numbers = 2 * K * H * keys + len(windows) * (2 * N * H + 4 * K * H)
    return numbers * B * bytes_per_value
