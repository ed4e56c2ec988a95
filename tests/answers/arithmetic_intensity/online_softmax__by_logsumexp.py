def update(m, l, scores):
    lse = torch.logaddexp(m.double() + l.double().log(), scores.double().logsumexp(-1))
    new = torch.maximum(m, scores.max(dim=-1).values)
    total = (lse - new.double()).exp()
    return new, total.masked_fill(new == float("-inf"), 0.0).float()
