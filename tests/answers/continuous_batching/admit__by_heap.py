def admit(waiting):
    import heapq

    longest, spent, given_up = [], 0, set()
    order = sorted(waiting, key=lambda r: r["due_ms"])
    for r in order:
        heapq.heappush(longest, (-r["read_ms"], r["id"]))
        spent += r["read_ms"]
        while spent > r["due_ms"]:
            minus, i = heapq.heappop(longest)
            spent += minus
            given_up.add(i)
    return [r["id"] for r in order if r["id"] not in given_up]
