def grow(table, unused, start, n_new, block_size):
    table, left = list(table), iter(unused)
    slots = []
    for p in range(start, start + n_new):
        block, place = divmod(p, block_size)
        if block == len(table):
            table.append(next(left))
        slots.append(table[block] * block_size + place)
    return table, slots
