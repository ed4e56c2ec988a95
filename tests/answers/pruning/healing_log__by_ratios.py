def rise(new, old):
    return new / old - 1


def read_log(before, log):
    held, train = ([entry[name] for entry in log] for name in ("held_out", "train"))
    if held[0] >= 8:
        return "broken"
    if rise(held[-1], before) <= 0.02:
        return "healed"
    best = min(range(len(log)), key=lambda i: held[i])
    if rise(held[-1], held[best]) > 0.01 and train[-1] < train[best]:
        return "overfit"
    back = len(log) - 1 - len(log) // 4
    return "unfinished" if rise(held[-1], held[back]) < -0.01 else "stuck"
