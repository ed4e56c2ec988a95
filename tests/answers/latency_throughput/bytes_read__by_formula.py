def bytes_read(model, B, S, bytes_per_value):
    L, D, F, N, K, H, V = (model[k] for k in "LDFNKHV")
    layer = 2 * D * N * H + 2 * D * K * H + 3 * D * F + 2 * D
    weights = L * layer + D + V * D + (0 if model["tied"] else B * D)
    cache = 2 * L * K * H * (S + 1)
    return bytes_per_value * (weights + B * cache)
