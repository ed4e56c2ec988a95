def start(T, H):
    return torch.zeros(T, H), torch.full((T, 1), -1e30), torch.zeros(T, 1)


def add_block(state, q, k, v, key_start, query_start):
    out, m, l = state
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(0, 1)
    for t in range(len(q)):
        seen = query_start + t - key_start + 1  # keys of this block that query t may see
        scores[t, max(0, seen) :] = -math.inf
    top = torch.maximum(m, scores.amax(1, keepdim=True))
    weights = (scores - top).exp()
    keep = (m - top).exp()
    return out * keep + weights @ v, top, l * keep + weights.sum(1, keepdim=True)


def finish(state):
    out, _, l = state
    return out / l
