def diagnose(events, m):
    layers = {}
    for e in events:
        if e["layer"] is not None:
            layers.setdefault(e["layer"], []).append(e)
    short = twice = False
    seen = set()
    for found in layers.values():
        sums = [e["n_bytes"] for e in found if e["op"] == "all_reduce"]
        short = short or any(size < m["B"] * m["D"] * m["bytes"] for size in sums)
        twice = twice or len(sums) >= 3
        seen.update(e["op"] for e in found)
    if short:
        return "reduced in part"
    if twice:
        return "reduced twice"
    tests = [
        ("replicas", not seen),
        ("stationary", "reduce_scatter" in seen),
        ("pipeline", not seen - {"send", "receive"}),
        ("gathered", not seen - {"all_gather"}),
        ("tensor", "all_to_all" not in seen),
        ("length", "all_gather" in seen),
        ("batch", True),
    ]
    return next(label for label, applies in tests if applies)
