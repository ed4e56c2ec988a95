def start(T, H):
    return torch.cat([torch.zeros(T, H), torch.full((T, 1), -math.inf), torch.zeros(T, 1)], dim=1)


def add_block(state, q, k, v, key_start, query_start):
    out, m, l = state[:, :-2], state[:, -2], state[:, -1]
    scores = torch.einsum("th,nh->tn", q, k) * q.shape[1] ** -0.5
    hidden = torch.arange(len(k)) + key_start > (torch.arange(len(q)) + query_start).unsqueeze(1)
    scores[hidden] = -math.inf
    top = torch.maximum(m, scores.amax(1))
    level = top.nan_to_num(neginf=0.0)
    keep, weights = (m - level).exp(), (scores - level[:, None]).exp()
    return torch.cat(
        [out * keep[:, None] + weights @ v, top[:, None], (l * keep + weights.sum(1))[:, None]],
        dim=1,
    )


def finish(state):
    return state[:, :-2] / state[:, -1:]
