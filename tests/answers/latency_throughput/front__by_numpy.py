def front(points):
    if not points:
        return []
    latency, tokens = np.array(points).T
    order = np.lexsort((np.arange(len(points)), -tokens, latency))
    before = np.concatenate([[-np.inf], np.maximum.accumulate(tokens[order])[:-1]])
    return order[tokens[order] > before]
