import math


def grow(table, unused, start, n_new, block_size):
    end = start + n_new
    missing = math.ceil(end / block_size) - len(table)
    longer = table + unused[:missing] if missing > 0 else list(table)
    every = [block * block_size + i for block in longer for i in range(block_size)]
    return longer, every[start:end]
