def max_batch(memory_bytes, weight_bytes, kv_bytes_per_token, n_tokens):
    def fits(B):
        return weight_bytes + B * kv_bytes_per_token * n_tokens <= memory_bytes

    if not fits(1):
        return 0
    high = 2
    while fits(high):
        high *= 2
    low = high // 2  # fits(low) holds, fits(high) does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
