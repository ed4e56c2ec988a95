def sees(p, window):
    return tuple(s for s in range(p + 1) if p - s < window)


def mask_tests():
    sizes = [(T, S, w) for S in (1, 5, 9) for T in {1, 3, S} for w in (1, 3) if T <= S]
    sizes = sizes[:14] + [(2, 3, 4), (3, 5, 5), (1, 3, 60)]
    found = []
    for T, S, window in sizes:
        rows = [sees(p, window) for p in range(S - T, S)]
        found.append(dict(T=T, S=S, window=window, sees=rows))
    return tuple(found)
