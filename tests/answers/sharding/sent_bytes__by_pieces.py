def sent_bytes(B, D, F, N, K, H, n, b):
    others = n - 1
    sums = 4 * others * (B * (D // n)) * b
    exchange = others * (B // n) * b * ((N // n) * H + 2 * (K // n) * H + (N // n) * H)
    asked = others * B * ((N // n) + 2 * (K // n)) * H * b
    partial = others * B * (N // n) * (4 * H + 8)
    columns = 3 * D * (F // n) + 2 * D * H * (N // n) + 2 * D * H * (K // n)
    return {
        "tensor": sums,
        "batch": sums + exchange,
        "length": sums + asked + partial,
        "gathered": others * columns * b,
    }
