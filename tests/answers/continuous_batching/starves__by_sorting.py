def expose():
    return [{"at_s": 3, "tokens": 700}] + [{"at_s": 3 + i, "tokens": 5 + i % 3} for i in range(40)]


def harmless():
    return [{"at_s": 0, "tokens": 2}, {"at_s": 1, "tokens": 8}, {"at_s": 1, "tokens": 3}]


def next_id(waiting, now_s, patience_s):
    def key(r):
        waited = now_s - r["arrival_s"] >= patience_s
        return (0, r["arrival_s"], 0) if waited else (1, r["tokens"], r["arrival_s"])

    return sorted(waiting, key=key)[0]["id"]
