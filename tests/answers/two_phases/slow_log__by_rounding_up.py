def diagnose(events):
    times = np.array([e["t_s"] for e in events])
    arrived, started, first = times[:3]
    gaps = np.diff(times[2:])
    n = math.ceil(gaps.size / 4)
    rules = {
        "queued": started - arrived > first - started,
        "no_cache": np.median(gaps[-n:]) > 2 * np.median(gaps[:n]),
        "stalled": (gaps > 10 * np.median(gaps)).any(),
        "healthy": True,
    }
    return next(label for label, holds in rules.items() if holds)
