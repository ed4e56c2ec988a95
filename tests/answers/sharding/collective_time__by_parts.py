def collective_s(kind, array_bytes, n_chips, axis_bytes_per_s, hop_s, closed):
    rounds = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}[kind]
    moved = array_bytes - array_bytes / n_chips
    if closed:
        latency, transfer = (n_chips // 2) * hop_s, moved / axis_bytes_per_s
    else:
        latency, transfer = (n_chips - 1) * hop_s, 2 * moved / axis_bytes_per_s
    return rounds * (latency + transfer)
