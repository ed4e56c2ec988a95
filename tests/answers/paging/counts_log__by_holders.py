from collections import Counter


def diagnose(events):
    held = Counter()
    for event in events:
        kind, block = event["event"], event["block"]
        if kind == "take":
            if held[block]:
                return "taken twice"
            held[block] = 1
        elif not held[block]:
            return "used after free"
        elif kind == "write":
            if held[block] >= 2:
                return "shared write"
        else:
            held[block] += 1 if kind == "share" else -1
    return "leak" if sum(held.values()) else "healthy"
