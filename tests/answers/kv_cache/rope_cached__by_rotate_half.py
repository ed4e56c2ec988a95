def rotate_half(x):
    H = x.shape[-1]
    return torch.cat((-x[..., H // 2 :], x[..., : H // 2]), dim=-1)


def turn(q, k, v, n_cached, theta):
    H, T = q.shape[-1], q.shape[1]
    inv = torch.tensor([theta ** (-2 * i / H) for i in range(H // 2)])
    angles = torch.stack([(n_cached + t) * inv for t in range(T)])
    full = torch.cat([angles, angles], dim=-1).unsqueeze(0).unsqueeze(2)
    return [x * full.cos() + rotate_half(x) * full.sin() for x in (q, k)] + [v]
