def chart_fault(chart, lengths):
    columns = list(zip(*chart))
    for column in columns:
        names = [x for x in column if x]
        if len(names) > len(set(names)):
            return "two slots"
    home = {}
    for slot, row in enumerate(chart):
        for x in row:
            if x and home.setdefault(x, slot) != slot:
                return "moves"
    for name, n in lengths.items():
        if sum(row.count(name) for row in chart) != n:
            return "length"
    for row in chart:
        over = set()
        for before, x in zip(["", *row], row):
            if before and before != x:
                over.add(before)
            if x in over:
                return "pauses"
    waiting = set(lengths)
    for column in columns:
        waiting -= set(column)
        if waiting and "" in column:
            return "idle"
    return "fine"
