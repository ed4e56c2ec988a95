def decode_point(model, B, S, memory_bytes, bytes_per_s):
    L, D, F, N, K, H, V = (model[k] for k in "LDFNKHV")
    weights = 2 * (L * (2 * D * N * H + 2 * D * K * H + 3 * D * F) + 2 * V * D)
    caches = 2 * B * S * L * 2 * K * H
    if weights + caches > memory_bytes:
        return None
    step_s = (weights + caches) / bytes_per_s
    return step_s, B / step_s
