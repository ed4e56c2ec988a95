def turn(q, k, v, n_cached, theta):
    H = q.shape[-1]
    frequency = 1.0 / (theta ** (torch.arange(0, H, 2).float() / H))
    position = torch.arange(q.shape[1]).float() + n_cached
    rotation = torch.polar(torch.ones(len(position), H // 2), torch.outer(position, frequency))[
        :, None, :
    ]

    def rotate(x):
        z = torch.complex(x[..., : H // 2].contiguous(), x[..., H // 2 :].contiguous()) * rotation
        return torch.cat([z.real, z.imag], -1)

    return rotate(q), rotate(k), v
