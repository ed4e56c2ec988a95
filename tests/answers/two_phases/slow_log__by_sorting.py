def middle(values):
    values, n = sorted(values), len(values)
    return (values[(n - 1) // 2] + values[n // 2]) / 2


def diagnose(events):
    tokens = [e["t_s"] for e in events if e["event"] == "token"]
    arrived, started = events[0]["t_s"], events[1]["t_s"]
    if (started - arrived) / (tokens[0] - arrived) > 0.5:
        return "queued"
    gaps = [tokens[i + 1] - tokens[i] for i in range(len(tokens) - 1)]
    n = len(gaps) // 4
    if middle(gaps[-n:]) / middle(gaps[:n]) > 2:
        return "no_cache"
    return "stalled" if max(gaps) / middle(gaps) > 10 else "healthy"
