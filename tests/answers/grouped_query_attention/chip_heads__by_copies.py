def expose():
    return ((1, 6, 12, 3),)


def heads_of_chip(rank, n_chips, N, K):
    queries = np.arange(N).reshape(n_chips, -1)[rank].tolist()
    if n_chips <= K:
        return queries, np.arange(K).reshape(n_chips, -1)[rank].tolist()
    copies = n_chips // K
    return [queries, [rank // copies]]
