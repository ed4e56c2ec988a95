from collections import Counter


def expose():
    return [{"tables": [[1, 2], [3, 4], [1, 5]], "parents": [2, 2, 0], "others": [3, 3]}]


def harmless():
    # both blocks of beam 1 are held twice elsewhere; those of beam 0 really become free
    return {"tables": [[6, 7], [0, 1]], "parents": [1, 1], "others": [0, 0, 1, 1]}


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
