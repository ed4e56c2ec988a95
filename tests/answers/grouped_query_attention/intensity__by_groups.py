def intensity(T, S, N, K, H, bytes_q, bytes_kv):
    G = N / K
    return 2 / (bytes_q / S + bytes_kv / (G * T))
