def cached_attention(q, k, v):
    B, T, N, H = q.shape
    S, K = k.shape[1:3]
    top, mass, out = torch.full((B, T, N, 1), -1e30), torch.zeros(B, T, N, 1), torch.zeros_like(q)
    last = torch.arange(S - T, S).view(1, T, 1, 1)
    for s in range(S):
        key, value = (x[:, s : s + 1].repeat_interleave(N // K, dim=2) for x in (k, v))
        scores = (q * key).sum(-1, keepdim=True) / H**0.5
        scores[(last < s).expand_as(scores)] = -torch.inf
        new = torch.maximum(top, scores)
        keep, weight = (top - new).exp(), (scores - new).exp()
        top, mass, out = new, mass * keep + weight, out * keep + weight * value
    return out / mass
