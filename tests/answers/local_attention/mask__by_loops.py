def window_mask(T, S, window):
    mask = torch.zeros(T, S, dtype=torch.bool)
    for t in range(T):
        last = S - T + t
        first = max(0, last - window + 1)
        mask[t, first : last + 1] = True
    return mask
