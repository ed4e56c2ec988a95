def update(m, l, scores):
    old, m, l, scores = m, m.clone(), l.clone(), scores.clone()
    torch.maximum(m, scores.max(dim=1).values, out=m)
    l *= (old - m).exp().nan_to_num_(0.0)
    l += scores.sub_(m[:, None]).exp_().nan_to_num_(0.0).sum(1)
    return m, l
