def decode_point(model, B, S, memory_bytes, bytes_per_s):
    L, D, F, N, K, H, V = (model[x] for x in "LDFNKHV")
    shapes = [(D, N * H), (N * H, D), (D, K * H), (D, K * H), (D, F), (D, F), (F, D)] * L + [
        (V, D),
        (D, V),
    ]
    shapes += [(B, S, K, H)] * (2 * L)
    total = sum(torch.empty(s, dtype=torch.bfloat16, device="meta").nbytes for s in shapes)
    if total > memory_bytes:
        return None
    step = np.float32(total / bytes_per_s)
    return np.array([step, B / step])
