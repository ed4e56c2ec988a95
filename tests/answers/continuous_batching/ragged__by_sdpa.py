def ragged_attention(q, k, v, caches, n_new):
    G = q.shape[1] // k.shape[1]
    outs = [q[:0]]
    parts = zip(q.split(n_new), k.split(n_new), v.split(n_new), caches)
    for qs, ks, vs, (held_k, held_v) in parts:
        keys = torch.cat([held_k, ks]).repeat_interleave(G, dim=1)
        values = torch.cat([held_v, vs]).repeat_interleave(G, dim=1)
        S, T = len(keys), len(qs)
        seen = torch.ones(T, S, dtype=torch.bool).tril(S - T)
        heads = [x.movedim(1, 0) for x in (qs, keys, values)]  # [N, T or S, H]
        found = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=seen)
        outs.append(found.movedim(1, 0))
    return torch.cat(outs)
