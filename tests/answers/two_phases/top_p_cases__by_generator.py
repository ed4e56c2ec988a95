def cases():
    law = np.array([2, 8, 1, 4, 0.75, 0.25]) / 16
    out = []
    for top_p in (0.25, 0.5, 0.6, 0.75, 0.8, 0.875, 1.0):
        order = np.argsort(-law)
        n = int(np.searchsorted(np.cumsum(law[order]), top_p)) + 1
        out.append((law, top_p, set(order[:n].tolist())))
    return out
