def step_bytes(B, S, S_max, N, K, H, bytes_per_value):
    append = 2 * (2 * B * K * H)
    attention = 2 * B * (S + 1) * K * H + 2 * B * N * H
    return (append + attention) * bytes_per_value
