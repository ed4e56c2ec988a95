def predict(B, T, S, D, F, N, K, H, bytes_per_value):
    def total(*shapes):
        return int(sum(np.prod(s, dtype=np.int64) for s in shapes)) * bytes_per_value

    def product(rows, inner, columns):
        return np.int64(2 * rows * inner * columns)

    return {
        "attention_bytes": total((B, T, N, H), (B, S, K, H), (B, S, K, H), (B, T, N, H)),
        "attention_flops": B * N * (product(T, H, S) + product(T, S, H)),
        "mlp_bytes": total((B, T, D), (D, F), (D, F), (F, D), (B, T, D)),
        "mlp_flops": 2 * product(B * T, D, F) + product(B * T, F, D),
    }
