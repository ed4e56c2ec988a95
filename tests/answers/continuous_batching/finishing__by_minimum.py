def finishing(lengths, seats):
    static, end = [], 0
    for i, n in enumerate(lengths):
        if i % seats == 0:
            end += max(lengths[i : i + seats])
        static.append(end)
    free, continuous = np.zeros(seats, dtype=int), []
    for n in lengths:
        seat = free.argmin()
        free[seat] += n
        continuous.append(int(free[seat]))
    return {"static": static, "continuous": continuous}
