def front(points):
    best, kept = -float("inf"), []
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1], i)):
        if points[i][1] > best:
            best = points[i][1]
            kept.append(i)
    return kept
