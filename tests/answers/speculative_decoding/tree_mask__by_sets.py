def tree_mask(parents, n_cached):
    ways = []
    for i, parent in enumerate(parents):
        ways.append({i} if parent == -1 else ways[parent] | {i})
    rows = [[True] * n_cached + [j in way for j in range(len(parents))] for way in ways]
    mask = torch.tensor(rows, dtype=torch.bool).reshape(len(parents), n_cached + len(parents))
    return mask, [n_cached - 1 + len(way) for way in ways]
