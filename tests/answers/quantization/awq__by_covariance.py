def choose_alpha(w, x, alphas, bits):
    h = x.T @ x  # [I, I]
    last = 2 ** (bits - 1) - 1

    def error(alpha):
        s = torch.pow(x.abs().sum(0) / len(x), alpha)
        grid = (w * s).abs().max(dim=1).values / last  # [O]
        d = torch.round(w * s / grid[:, None]) * grid[:, None] / s - w
        return float(((d @ h) * d).sum())

    best = min(alphas, key=error)
    return best, error(best)
