def cut_heads(q, k, v, o, H, kept):
    D = q.shape[1]
    N, K = q.shape[0] // H, k.shape[0] // H
    read = [j for j in range(K) if any(n * K // N == j for n in kept)]
    q = q.view(N, H, D)[kept].reshape(-1, D)  # [kept·H, D]
    k, v = (x.view(K, H, D)[read].reshape(-1, D) for x in (k, v))  # [read·H, D]
    o = o.view(D, N, H)[:, kept].reshape(D, -1)  # [D, kept·H]
    return q, k, v, o
