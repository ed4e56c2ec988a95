def window_mask(T, S, window):
    everything = torch.ones(T, S, dtype=torch.bool)
    not_ahead = torch.tril(everything, diagonal=S - T)
    not_too_old = torch.triu(everything, diagonal=S - T - window + 1)
    return torch.logical_and(not_ahead, not_too_old)
