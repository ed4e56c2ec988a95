def sent_bytes(B, D, F, N, K, H, n, b):
    def gathered(numbers, width):
        return numbers * width - numbers * width // n

    reduced = 2 * gathered(B * D, b)
    queries = B * (N + 2 * K) * H
    outputs = B * N * H
    return {
        "tensor": reduced + reduced,
        "batch": 2 * reduced + gathered(queries // n, b) + gathered(outputs // n, b),
        "length": 2 * reduced + gathered(queries, b) + gathered(B * N * (H + 2), 4),
        "gathered": gathered(D * (3 * F + 2 * H * (N + K)), b),
    }
