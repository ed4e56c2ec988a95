import torch


def attend(q, keys, values, tables, lengths):
    B, N, H = q.shape
    n_blocks, size, K, _ = keys.shape
    flat_keys = keys.reshape(n_blocks * size, K, H)  # [slots, K, H]
    flat_values = values.reshape(n_blocks * size, K, H)  # [slots, K, H]
    rows = []
    for query, table, n in zip(q, tables, lengths):
        slots = [table[p // size] * size + p % size for p in range(n)]
        k, v = flat_keys[slots], flat_values[slots]  # [n, K, H]
        grouped = query.view(K, N // K, H)  # [K, G, H]
        scores = grouped @ k.permute(1, 2, 0) * H**-0.5  # [K, G, n]
        weights = torch.softmax(scores, dim=-1)  # [K, G, n]
        rows.append((weights @ v.transpose(0, 1)).reshape(N, H))  # [N, H]
    return torch.stack(rows)
