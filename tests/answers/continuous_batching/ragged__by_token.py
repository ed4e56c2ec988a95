def ragged_attention(q, k, v, caches, n_new):
    out = torch.zeros(q.shape)
    n, N, H = q.shape
    K = k.shape[1]
    i = 0
    for (keys, values), new in zip(caches, n_new):
        for _ in range(new):
            keys, values = torch.cat([keys, k[i : i + 1]]), torch.cat([values, v[i : i + 1]])
            grouped = q[i].reshape(K, N // K, H)  # [K, G, H]
            scores = torch.einsum("kgh,skh->kgs", grouped, keys) * H**-0.5
            out[i] = torch.einsum("kgs,skh->kgh", scores.softmax(-1), values).reshape(N, H)
            i += 1
    return out
