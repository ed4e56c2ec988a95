def cut_heads(q, k, v, o, H, kept):
    group = len(q) // len(k)  # query heads for each KV head
    kv = []
    for n in kept:
        if n // group not in kv:
            kv.append(n // group)

    def rows(x, heads):
        return torch.cat([x[n * H : n * H + H] for n in heads])

    return rows(q, kept), rows(k, kv), rows(v, kv), rows(o.T, kept).T
