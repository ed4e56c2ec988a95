def run(x, experts, weights, expert):
    y = torch.zeros(x.shape)
    for e in torch.unique(experts):
        here = experts == e
        who = here.any(1)
        y[who] += (weights * here).sum(1)[who, None] * expert(int(e), x[who])
    return y
