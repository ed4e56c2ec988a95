def step_bytes(B, S, windows, N, K, H, bytes_per_value):
    def layer(keys):
        moved = {
            "new key and value, read and written": 2 * 2 * (B * K * H),
            "keys": B * keys * K * H,
            "values": B * keys * K * H,
            "query": B * N * H,
            "output": B * N * H,
        }
        return sum(moved.values())

    return bytes_per_value * sum(layer(S + 1 if w is None or w > S else w) for w in windows)
