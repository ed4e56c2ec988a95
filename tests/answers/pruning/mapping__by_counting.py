def expose():
    return [{"kept": [0, 1, 4], "N": 8, "K": 2}]


def harmless():
    return {"kept": [4, 6, 9, 11], "N": 12, "K": 3}


def kv_of(kept, N, K):
    numbers, new, before = [], -1, None
    for n in kept:
        if n * K // N != before:
            before = n * K // N
            new += 1
        numbers.append(new)
    return numbers
