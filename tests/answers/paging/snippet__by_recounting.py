def expose():
    return [{"tables": [[0], [1]], "parents": [0, 1], "others": []}]


def harmless():
    return {"tables": [[0], [0, 1]], "parents": [0, 0], "others": [0, 0]}


def reorder(tables, parents, count, unused):
    new = [tables[p][:] for p in parents]
    count = [
        n + sum(t.count(b) for t in new) - sum(t.count(b) for t in tables)
        for b, n in enumerate(count)
    ]
    named_before = {b for t in tables for b in t}
    back = [b for b in sorted(named_before) if count[b] == 0]
    return new, count, unused + back
