def ring_all_reduce(chunks, rank, exchange):
    n = len(chunks)
    part = {i: chunk for i, chunk in enumerate(chunks)}
    for i in range(rank, rank - n + 1, -1):
        part[(i - 1) % n] = exchange(part[i % n]) + part[(i - 1) % n]
    for i in range(rank + 1, rank - n + 2, -1):
        part[(i - 1) % n] = exchange(part[i % n])
    return [part[i] for i in range(n)]
