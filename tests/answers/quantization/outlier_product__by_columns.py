def product(x, codes, scales, threshold):
    large = x.abs().max(dim=0).values >= threshold
    inside, outside = x[:, ~large], x[:, large]
    y = outside @ codes[:, large].float().T
    if inside.shape[1]:
        size = inside.abs().max(dim=1).values
        step = torch.where(size > 0, size / 127, 1.0)[:, None]
        q = torch.round(inside / step).to(torch.int32)
        y = y + (q @ codes[:, ~large].to(torch.int32).T) * step
    return y * scales
