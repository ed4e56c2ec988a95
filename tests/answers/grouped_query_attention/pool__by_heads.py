def pool_heads(weight, N, K):
    heads = weight.chunk(N, dim=0)
    G = len(heads) // K
    return torch.cat([sum(heads[j * G : (j + 1) * G]) / G for j in range(K)])
