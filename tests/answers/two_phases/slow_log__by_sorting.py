def diagnose(events):
    tokens = [e["t_s"] for e in events if e["event"] == "token"]
    arrived, started = events[0]["t_s"], events[1]["t_s"]
    if (started - arrived) / (tokens[0] - arrived) > 0.5:
        return "queued"
    gaps = [tokens[i + 1] - tokens[i] for i in range(len(tokens) - 1)]
    n = len(gaps) // 4
    early, late = sorted(gaps[:n])[n // 2], sorted(gaps[-n:])[n // 2]
    if late / early > 2:
        return "no_cache"
    typical = sorted(gaps)[len(gaps) // 2]
    return "stalled" if max(gaps) / typical > 10 else "healthy"
