def intensity(T, S, N, K, H, bytes_q, bytes_kv):
    scores = T * N * S * H * 2
    outputs = T * N * S * H * 2
    read = T * N * H * bytes_q + S * K * H * bytes_kv + S * K * H * bytes_kv
    written = T * N * H * bytes_q
    return (scores + outputs) / (read + written)
