def attention_rank(q, k, v, w_o, rank, n, all_reduce):
    (T, N, H), (S, K, _) = q.shape, k.shape
    own = N // n
    first = rank * own
    reads = torch.arange(first, first + own) // (N // K)
    qs = q[:, first : first + own].transpose(0, 1)
    ks, vs = k[:, reads].transpose(0, 1), v[:, reads].transpose(0, 1)
    scores = qs @ ks.mT / H**0.5
    seen = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), -1)
    out = (weights @ vs).transpose(0, 1).reshape(T, own * H)
    return all_reduce(out @ w_o[first * H : (first + own) * H])
