def receptive_field(windows, S):
    oldest = S - 1  # the position furthest back that still matters
    for window in windows[::-1]:
        if window is None:
            oldest = 0
        else:
            oldest = max(0, oldest - window + 1)
    return S - oldest
