def read_log(before, log):
    held, train = ([entry[name] for entry in log] for name in ("held_out", "train"))
    n = len(log)
    best = held.index(min(held))
    if held[0] >= 8:
        return "broken"
    if held[-1] <= before * 1.02:
        return "healed"
    if held[-1] > min(held) * 1.01 and train[-1] < train[best]:
        return "overfit"
    return "unfinished" if held[-1] < 0.99 * held[n - 1 - n // 4] else "stuck"
