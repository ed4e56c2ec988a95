def diagnose(events):
    """The history of each block by itself; the earliest fault of all."""
    faults, leak = [], False
    for block in {e["block"] for e in events}:
        holders = 0
        for i, e in enumerate(events):
            if e["block"] != block:
                continue
            kind = e["event"]
            if kind == "take" and holders:
                faults.append((i, "taken twice"))
                break
            if kind != "take" and not holders:
                faults.append((i, "used after free"))
                break
            if kind == "write" and holders != 1:
                faults.append((i, "shared write"))
                break
            if kind in ("take", "share"):
                holders += 1
            if kind == "release":
                holders -= 1
        leak = leak or holders > 0
    if faults:
        return min(faults)[1]
    return ["healthy", "leak"][leak]
