def tree_mask(parents, n_cached):
    n = len(parents)
    mask = torch.ones(n, n_cached + n, dtype=torch.bool)
    mask[:, n_cached:] = False
    positions = []
    for i in range(n):
        at, depth = i, -1
        while at >= 0:
            mask[i, n_cached + at] = True
            at = parents[at]
            depth += 1
        positions.append(n_cached + depth)
    return mask, positions
