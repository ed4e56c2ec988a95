def ragged_attention(q, k, v, caches, n_new):
    G = q.shape[1] // k.shape[1]
    outs = [q[:0]]
    parts = zip(q.split(n_new), k.split(n_new), v.split(n_new), caches)
    for qs, ks, vs, (held_k, held_v) in parts:
        if len(qs):
            keys = torch.cat([held_k, ks]).repeat_interleave(G, dim=1)
            values = torch.cat([held_v, vs]).repeat_interleave(G, dim=1)
            S, T = len(keys), len(qs)
            seen = torch.ones(T, S, dtype=torch.bool).tril(S - T)
            found = torch.nn.functional.scaled_dot_product_attention(
                qs.transpose(0, 1), keys.transpose(0, 1), values.transpose(0, 1), attn_mask=seen
            )
            outs.append(found.transpose(0, 1))
    return torch.cat(outs)
