def expert_bytes(B, E, k, D, F, bytes_per_param):
    # each token touches k/E of the experts that are still untouched
    untouched = E
    for _ in range(min(B, 100_000)):
        untouched -= untouched * k / E
    return bytes_per_param * 3 * D * F * (E - untouched)
