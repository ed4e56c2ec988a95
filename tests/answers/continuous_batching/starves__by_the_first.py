def expose():
    trace = [{"at_s": t, "tokens": 10} for t in range(30)]
    return [{"at_s": 0, "tokens": 11}, *trace]


def harmless():
    return [{"at_s": 5, "tokens": n} for n in (4, 3, 2, 1)]


def next_id(waiting, now_s, patience_s):
    first = waiting[0]
    for r in waiting:
        if r["arrival_s"] < first["arrival_s"]:
            first = r
    if now_s - first["arrival_s"] >= patience_s:  # nobody has waited longer
        return first["id"]
    least = min(r["tokens"] for r in waiting)
    short = [r for r in waiting if r["tokens"] == least]
    return min(short, key=lambda r: r["arrival_s"])["id"]
