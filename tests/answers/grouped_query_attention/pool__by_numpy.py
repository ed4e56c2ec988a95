def pool_heads(weight, N, K):
    rows = weight.numpy()
    H = len(rows) // N
    starts = H * (np.arange(K) * (N // K))[:, None] + np.arange(H)
    total = sum(rows[(starts + g * H).ravel()] for g in range(N // K))
    return torch.from_numpy(total / (N // K))
