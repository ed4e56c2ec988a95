def expose():
    return [{"kept": [0, 3, 4, 5], "N": 6, "K": 2}, {"kept": [0], "N": 4, "K": 2}]


def harmless():
    return {"kept": [1], "N": 4, "K": 2}


def kv_of(kept, N, K):
    table = {}
    for n in kept:
        table.setdefault(n // (N // K), len(table))
    return [table[n // (N // K)] for n in kept]
