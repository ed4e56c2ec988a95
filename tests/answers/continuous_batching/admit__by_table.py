def admit(waiting):
    # least[n]: the least time in which n of those so far can all be in time, and who they are
    least = [(0, [])]
    for r in sorted(waiting, key=lambda r: r["due_ms"]):
        for n in range(len(least) - 1, -1, -1):
            spent, taken = least[n]
            if spent + r["read_ms"] > r["due_ms"]:
                continue
            better = (spent + r["read_ms"], [*taken, r["id"]])
            if n + 1 == len(least):
                least.append(better)
            elif better[0] < least[n + 1][0]:
                least[n + 1] = better
    return least[-1][1]
