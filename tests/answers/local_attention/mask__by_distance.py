def window_mask(T, S, window):
    distance = np.arange(S - T, S)[:, None] - np.arange(S)[None, :]
    return torch.from_numpy((distance >= 0) * (distance < window))
