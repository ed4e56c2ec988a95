def update(m, l, scores):
    top = torch.cat([m[:, None], scores], dim=1).amax(dim=1)
    shift = top.nan_to_num(neginf=0.0)
    l = l * (m - shift).exp()
    l = l + (scores - shift.unsqueeze(1)).exp().sum(dim=1)
    return (top, l)
