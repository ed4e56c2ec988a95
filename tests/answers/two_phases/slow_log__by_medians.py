def diagnose(events):
    t = {}
    for e in events:
        t.setdefault(e["event"], []).append(e["t_s"])
    arrived, started, tokens = t["arrived"][0], t["started"][0], t["token"]
    gaps = np.diff(tokens)
    if started - arrived > 0.5 * (tokens[0] - arrived):
        return "queued"
    quarter = len(gaps) // 4
    if np.median(gaps[-quarter:]) > 2 * np.median(gaps[:quarter]):
        return "no_cache"
    return "stalled" if gaps.max() > 10 * np.median(gaps) else "healthy"
