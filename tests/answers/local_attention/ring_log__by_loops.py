def diagnose(window, passes):
    p = 0
    some_missing = future = False
    only_oldest = True  # every full window misses its oldest key, and nothing else is missing
    older = []
    for block in passes:
        for seen in block:
            first = max(0, p - window + 1)
            gone = [s for s in range(first, p + 1) if s not in seen]
            future = future or any(s > p for s in seen)
            older += [s for s in seen if s < first]
            some_missing = some_missing or bool(gone)
            if gone != ([first] if p + 1 >= window else []):
                only_oldest = False
            p += 1
    if future:
        return "future"
    if some_missing:
        return "short" if only_oldest else "lost"
    if not older:
        return "healthy"
    return "sinks" if all(s < 4 for s in older) else "long"
