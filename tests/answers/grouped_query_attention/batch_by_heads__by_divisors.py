def batch_by_heads(memory_bytes, other_params, L, D, N, H, n_tokens, bytes_per_value):
    answer = []
    for G in [g for g in range(1, N + 1) if N % g == 0]:
        K = N // G
        projections = D * N * H + D * K * H + D * K * H + N * H * D
        weights = bytes_per_value * (other_params + L * projections)
        one = 2 * bytes_per_value * K * H * L * n_tokens
        answer.append((K, (memory_bytes - weights) // one if memory_bytes > weights else 0))
    return answer
