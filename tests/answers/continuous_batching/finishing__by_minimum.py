def finishing(lengths, seats):
    static, end = [], 0
    for i, n in enumerate(lengths):
        if i % seats == 0:
            end += max(lengths[i : i + seats])
        static.append(end)
    free, continuous = [0] * seats, []
    for n in lengths:
        seat = np.argmin(free)
        free[seat] += n
        continuous.append(free[seat])
    return {"static": static, "continuous": continuous}
