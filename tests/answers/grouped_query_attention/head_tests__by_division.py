def head_tests():
    shapes = [(12, 4), (20, 4), (5, 5), (7, 1), (24, 8)]
    return [(N, K, [n // (N // K) for n in range(N)]) for N, K in shapes]
