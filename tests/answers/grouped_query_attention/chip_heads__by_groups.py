def expose():
    return [(1, 4, 8, 2), (0, 2, 4, 2)]


def heads_of_chip(rank, n_chips, N, K):
    per_chip = N // n_chips
    mine = [rank * per_chip + i for i in range(per_chip)]
    G = N // K
    return mine, sorted({n // G for n in mine})
