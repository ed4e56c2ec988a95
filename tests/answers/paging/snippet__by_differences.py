from collections import Counter


def expose():
    return [{"tables": [[0, 1], [0]], "parents": [0, 0], "others": []}]


def harmless():
    # both blocks of beam 1 are held elsewhere; that of beam 0 really becomes free
    return {"tables": [[2], [0, 1]], "parents": [1, 1], "others": [0, 1]}


def reorder(tables, parents, count, unused):
    change = Counter()
    for p in parents:
        change.update(tables[p])
    for table in tables:
        change.subtract(table)
    after = list(count)
    for block, by in change.items():
        after[block] += by
    gone = {block for block in change if after[block] == 0}
    return [[*tables[p]] for p in parents], after, [*gone, *unused]
