def front(points):
    first = {}
    for i, point in enumerate(points):
        first.setdefault(tuple(point), i)
    kept, most = [], -math.inf
    for latency, rate in sorted(first, key=lambda point: (point[0], -point[1])):
        if rate > most:
            most = rate
            kept.append(first[latency, rate])
    return kept
