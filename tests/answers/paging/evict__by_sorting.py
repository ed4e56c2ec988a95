def evict(blocks, n):
    order = sorted(blocks, key=lambda b: (b["used_s"], b["id"]))
    gone = []

    def has_child(b):
        return any(c["parent"] == b["id"] and c["id"] not in gone for c in blocks)

    for _ in range(n):
        for b in order:
            if b["id"] not in gone and not b["readers"] and not has_child(b):
                gone.append(b["id"])
                break
    return gone
