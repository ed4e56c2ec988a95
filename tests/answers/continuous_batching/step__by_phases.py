def schedule(running, waiting, seats, budget, chunked):
    made = []
    for r in running:
        if r["missing"] == 1 and len(made) < budget:
            made.append((r["id"], 1))
    left = budget - len(made)
    for r in running:
        if r["missing"] > 1 and left > 0:
            made.append((r["id"], min(left, r["missing"])))
            left -= made[-1][1]
    taken = len(running)
    for r in waiting:
        whole = r["missing"] <= left
        if taken == seats or left == 0 or not (whole or chunked):
            return made
        made.append((r["id"], r["missing"] if whole else left))
        left -= made[-1][1]
        taken += 1
    return made
