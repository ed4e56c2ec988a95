def diagnose(events, m):
    own = [e for e in events if e["layer"] is not None]

    def count(op, layer=None):
        return sum(e["op"] == op and (layer is None or e["layer"] == layer) for e in own)

    complete = m["bytes"] * m["B"] * m["D"]
    if [e for e in own if e["op"] == "all_reduce" and e["n_bytes"] < complete]:
        return "reduced in part"
    if any(count("all_reduce", i) > 2 for i in range(m["L"])):
        return "reduced twice"
    if not own:
        return "replicas"
    if len(own) == count("send") + count("receive"):
        return "pipeline"
    if count("reduce_scatter"):
        return "stationary"
    if len(own) == count("all_gather"):
        return "gathered"
    if not count("all_to_all"):
        return "tensor"
    return "length" if count("all_gather") else "batch"
