def to_remove(loss, sizes, budget):
    best, lowest = [], float("inf")
    for code in range(2 ** len(sizes)):
        removed = [u for u in range(len(sizes)) if code >> u & 1]
        stays = sum(size for u, size in enumerate(sizes) if u not in removed)
        if stays <= budget:
            found = loss(removed)
            if found < lowest:
                best, lowest = removed, found
    return best
