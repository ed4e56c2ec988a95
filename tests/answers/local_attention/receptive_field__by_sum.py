def receptive_field(windows, S):
    if any(w is None for w in windows):
        return S
    return min(S, sum(windows) - len(windows) + 1)
