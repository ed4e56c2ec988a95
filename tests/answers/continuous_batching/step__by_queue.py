def schedule(running, waiting, seats, budget, chunked):
    order = sorted(running, key=lambda r: r["missing"] > 1)
    new = waiting[: seats - len(running)]
    made, spent = [], 0
    for i, r in enumerate(order + new):
        n = min(r["missing"], budget - spent)
        if i >= len(order) and n < r["missing"] and not chunked:
            break
        if n <= 0:
            break
        spent += n
        made.append([r["id"], n])
    return made
