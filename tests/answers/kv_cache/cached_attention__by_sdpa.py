def cached_attention(q, k, v):
    G = q.shape[2] // k.shape[2]
    T, S = q.shape[1], k.shape[1]
    mask = torch.ones(T, S, dtype=torch.bool).tril(diagonal=S - T)
    k, v = (x.repeat_interleave(G, dim=2).transpose(1, 2) for x in (k, v))
    return torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2), k, v, attn_mask=mask
    ).transpose(1, 2)
