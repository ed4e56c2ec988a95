def _join(a, b):
    H = a.shape[1] - 2
    m = torch.maximum(a[:, H], b[:, H])
    zero = torch.zeros_like(m)
    fa = torch.where(a[:, H] == m, zero, a[:, H] - m).exp()
    fb = torch.where(b[:, H] == m, zero, b[:, H] - m).exp()
    sums = fa[:, None] * a[:, :H] + fb[:, None] * b[:, :H]
    weight = fa * a[:, H + 1] + fb * b[:, H + 1]
    return torch.cat([sums, m[:, None], weight[:, None]], 1)


def decode_rank(q, k, v, all_gather):
    N, H = q.shape
    S, K, _ = k.shape
    group = q.reshape(K, N // K, H)
    scores = torch.einsum("kgh,skh->kgs", group, k).reshape(N, S) * H**-0.5
    m = torch.cat([scores, torch.full((N, 1), float("-inf"))], 1).max(1).values
    weights = torch.exp(scores - m[:, None]) if S else scores
    out = torch.einsum("kgs,skh->kgh", weights.reshape(K, N // K, S), v).reshape(N, H)
    mine = torch.cat([out, m[:, None], weights.sum(1, keepdim=True)], 1)
    first, *others = all_gather(mine)
    for other in others:
        first = _join(first, other)
    return first[:, :H] / first[:, H + 1 :]
