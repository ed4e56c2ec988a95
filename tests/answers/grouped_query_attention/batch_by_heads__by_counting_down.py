def batch_by_heads(memory_bytes, other_params, L, D, N, H, n_tokens, bytes_per_value):
    room = memory_bytes // bytes_per_value
    pairs = {}
    for K in range(1, N + 1):
        if N / K == N // K:
            left = room - other_params - 2 * L * D * H * N - 2 * L * D * H * K
            pairs[K] = max(left, 0) // (2 * L * H * K * n_tokens)
    return [[K, pairs[K]] for K in sorted(pairs, reverse=True)]
