def attention_bytes(B, S, N, K, H, bytes_per_value):
    G = N // K
    kv = 2 * S * K * H
    qo = 2 * N * H
    unit = B * bytes_per_value
    return dict(shared=(kv + qo) * unit, repeated=((2 * G + 1) * kv + qo) * unit)
