def seats(experts, E, percent):
    routing = np.array(experts)
    n, k = routing.shape
    capacity = (percent * n * k + 100 * E - 1) // (100 * E)
    order = routing.T.reshape(-1)
    place = np.zeros(n * k, dtype=int)
    for e in np.unique(order):
        mine = order == e
        place[mine] = np.arange(mine.sum())
    table = place.reshape(k, n).T
    return [[int(p) if p < capacity else None for p in row] for row in table]
