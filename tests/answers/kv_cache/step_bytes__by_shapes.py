def step_bytes(B, S, S_max, N, K, H, bytes_per_value):
    moved = {
        "new key and value read": 2 * np.prod([B, 1, K, H]),
        "new key and value written": 2 * np.prod([B, 1, K, H]),
        "keys read": np.prod([B, S + 1, K, H]),
        "values read": np.prod([B, S + 1, K, H]),
        "query read": np.prod([B, 1, N, H]),
        "output written": np.prod([B, 1, N, H]),
    }
    return sum(moved.values()) * bytes_per_value
