def burstiness(times_s):
    if len(times_s) < 2:
        return None
    gaps = np.diff(np.array(times_s))
    return {"per_s": len(gaps) / gaps.sum(), "burstiness": gaps.var() / gaps.mean() ** 2}
