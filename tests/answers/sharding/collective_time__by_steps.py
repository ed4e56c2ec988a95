def collective_s(kind, array_bytes, n_chips, axis_bytes_per_s, hop_s, closed):
    # step by step: in each, every wire carries one piece one way
    piece_s = array_bytes / n_chips / (axis_bytes_per_s / 2)
    total = 0.0
    left = n_chips - 1  # pieces that the last chip still lacks
    while left > 0:
        arriving = min(left, 2) if closed else 1
        total += hop_s + piece_s * arriving / (2 if closed else 1)
        left -= arriving
    return total * (2 if kind == "all_reduce" else 1)
