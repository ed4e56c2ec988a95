def turn(q, k, v, n_cached, theta):
    half = q.shape[-1] // 2
    out = [torch.zeros_like(q), torch.zeros_like(k)]
    for t in range(q.shape[1]):
        angles = [(n_cached + t) * theta ** (-i / half) for i in range(half)]
        cos = torch.diag(torch.tensor([math.cos(a) for a in angles]))
        sin = torch.diag(torch.tensor([math.sin(a) for a in angles]))
        rotation = torch.cat([torch.cat([cos, -sin], dim=1), torch.cat([sin, cos], dim=1)])
        for x, y in zip((q, k), out):
            y[:, t] = x[:, t] @ rotation.T
    return [*out, v]
