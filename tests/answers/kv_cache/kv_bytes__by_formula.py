def kv_bytes(L, D, N, K, H, bytes_per_value):
    return 2 * L * K * H * bytes_per_value
