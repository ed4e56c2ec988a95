def pool_heads(weight, N, K):
    G, H = N // K, weight.shape[0] // N
    mixing = torch.zeros(K * H, N * H, dtype=weight.dtype)
    for j in range(K):
        for g in range(G):
            for i in range(H):
                mixing[j * H + i, (j * G + g) * H + i] = 1 / G
    return mixing @ weight
