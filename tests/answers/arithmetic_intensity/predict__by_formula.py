def predict(B, T, S, D, F, N, K, H, bytes_per_value):
    b = bytes_per_value
    return {
        "mlp_flops": 3 * (2 * B * T * D * F),
        "mlp_bytes": b * (B * T * D + 3 * D * F + B * T * D),
        "attention_flops": 2 * (2 * B * N * T * S * H),
        "attention_bytes": b * (2 * B * T * N * H + 2 * B * S * K * H),
    }
