def cached_attention(q, k, v):
    B, T, N, H = q.shape
    S, K = k.shape[1], k.shape[2]
    q = q.reshape(B, T, K, N // K, H).permute(0, 2, 3, 1, 4)
    scores = q @ (k / math.sqrt(H)).permute(0, 2, 3, 1)[:, :, None]
    scores = scores + torch.full((T, S), float("-inf")).triu(S - T + 1)
    weights = (scores - torch.logsumexp(scores, dim=-1, keepdim=True)).exp()
    out = weights @ v.permute(0, 2, 1, 3)[:, :, None]
    return out.permute(0, 3, 1, 2, 4).reshape(B, T, N, H)
